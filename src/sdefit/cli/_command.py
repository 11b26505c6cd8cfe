"""The command class of all commands: an option that takes one value may be given once."""

from typing import Any

from typer.core import TyperCommand

from sdefit.errors import InputError


class Once(TyperCommand):
    """A command that refuses what it would otherwise pass over in silence: the first of two values of an option."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        _, _, order = self.make_parser(ctx).parse_args(args=list(args))
        for parameter in order:
            many = getattr(parameter, "multiple", False) or parameter.nargs != 1
            if parameter.param_type_name == "option" and not many and (count := order.count(parameter)) > 1:
                name = max(parameter.opts, key=len)
                raise InputError(f"{name} must be given once, but stands here {count} times; keep one of them")
        return super().parse_args(ctx, args)
