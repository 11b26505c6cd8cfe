// A click on a column's head sorts its table by that column; a second click turns the order round.
for (const button of document.querySelectorAll("thead button")) {
  button.addEventListener("click", () => {
    const head = button.closest("th"), body = head.closest("table").tBodies[0];
    const place = head.cellIndex, down = head.getAttribute("aria-sort") === "ascending";
    const value = (row) => row.cells[place].dataset.value ?? "";
    const order = (a, b) => {
      const x = Number(value(a)), y = Number(value(b));
      if (Number.isNaN(x) || Number.isNaN(y)) return value(a).localeCompare(value(b));
      return x - y;
    };
    const rows = [...body.rows].sort(order);
    body.append(...(down ? rows.reverse() : rows));
    for (const other of head.parentNode.cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
  });
}
