"""What mkdocstrings needs to be told: our docstrings as Markdown, and the signature of a method's settings."""

import re

from griffe import Class, Extension, Function, Object, Parameter, ParameterKind, Parameters

# A line of prose, that is none of a list nor its continuation, with a list right below.
BEFORE_LIST = re.compile(r"^(?!- |\d\. | )(.*\S)\n(?=- |\d\. )", re.MULTILINE)
EXAMPLE = re.compile(r"^>>> .*(?:\n.+)*", re.MULTILINE)


class AsMarkdown(Extension):
    """Blank lines before lists and fences about examples, so that the docstrings in the source need not have them."""

    def on_object(self, *, obj: Object, **_) -> None:
        if obj.docstring:
            spaced = BEFORE_LIST.sub(r"\1\n\n", obj.docstring.value)
            obj.docstring.value = EXAMPLE.sub(r"```pycon\n\g<0>\n```", spaced)


class SettingsOfMethods(Extension):
    """The signature of an Equinox module of settings, which is made when it is imported: from its fields."""

    def on_class(self, *, cls: Class, **_) -> None:
        if not cls.path.startswith("sdefit.methods."):
            return
        fields = [one for one in cls.attributes.values() if one.value and "instance-attribute" in one.labels]
        fields = [one for one in fields if str(one.annotation) != "ClassVar"]
        kind = ParameterKind.positional_or_keyword
        given = [Parameter(one.name, annotation=one.annotation, kind=kind, default=one.value) for one in fields]
        cls.set_member("__init__", Function("__init__", parameters=Parameters(*given)))
