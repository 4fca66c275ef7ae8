"""Tables of figures for Markdown, with budgets and limits of growth: rows, misses, and the marks between which a table is kept."""
import dataclasses, math, sys, textwrap, time

from machine_speed import described_machine
from console import number


@dataclasses.dataclass(frozen=True)
class Row:
    """One figure of each column: its text, unit and key, and the limits that it has to keep."""
    what: str
    unit: str
    key: str
    most: float | None = None
    least: float | None = None
    # The largest growth exponent, in relation to the figure `by`. Anything below `floor` counts as `floor`: a change from 0.1 s to 0.2 s
    # is noise, and its exponent would say nothing.
    growth: float | None = None
    floor: float = 0
    by: str = "nodes"

    def text(self, value):
        return value if isinstance(value, str) else f"{number(value)} {self.unit}".strip()

    def budget(self):
        limits = [f"≤ {self.text(self.most)}"] if self.most is not None else []
        return " ".join(limits + ([f"≥ {self.text(self.least)}"] if self.least is not None else []))

    def growth_limit(self):
        return "" if self.growth is None else f"≤ {self.growth} above {self.text(self.floor)}"

    def verdict(self, value):
        """`over` or `under` if the value misses the budget, else nothing. A text says why there is no value: with a budget, it is a miss."""
        if isinstance(value, str):
            return "over" if self.budget() else ""
        if self.most is not None and value > self.most:
            return "over"
        return "under" if self.least is not None and value < self.least else ""

    def exponent(self, first, last):
        """Growth exponent between two columns; None if the figure is too small to tell, or is no number."""
        begin, end = first.get(self.key), last.get(self.key)
        if self.growth is None or not all(isinstance(value, (int, float)) for value in (begin, end)) or first[self.by] >= last[self.by]:
            return None
        begin = max(begin, self.floor)
        return math.log(end / begin) / math.log(last[self.by] / first[self.by]) if end > self.floor else None


def marked(text, verdict):
    return f"**{text}** {verdict}" if verdict else text


def grows_too_fast(row, exponent):
    return exponent is not None and exponent > row.growth


def table(rows, columns, judged, with_growth=False):
    """Markdown table of figures. `columns`: pairs of a heading and figures by key; `judged`: indexes of the columns that have to keep the
    budgets. The growth exponent is that from the first column to the last."""
    heads = ["measurement", "budget", *(head for head, _ in columns), *(["growth exponent", "limit of growth"] if with_growth else [])]
    lines = [f"| {' | '.join(heads)} |", "| --- " * len(heads) + "|"]
    for row in rows:
        cells = [row.what, row.budget()]
        for i, (_, figures) in enumerate(columns):
            value = figures.get(row.key)
            if value is None:
                value = "–" if i in judged and row.budget() else ""
            cells.append(marked(row.text(value), row.verdict(value) if i in judged else ""))
        if with_growth:
            exponent = row.exponent(columns[0][1], columns[-1][1])
            text = "" if row.growth is None else "–" if exponent is None else f"{exponent:.2f}"
            cells += [marked(text, "over" if grows_too_fast(row, exponent) else ""), row.growth_limit()]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def misses(rows, columns, judged, with_growth=False):
    """One line for each budget or limit of growth that is missed. A figure that is not there misses its budget."""
    found, above = [], ""
    for row in rows:
        detail = row.what.lstrip("… ")
        above, name = (above, f"{above}: {detail}") if row.what.startswith("…") else (row.what, row.what)
        for i in judged:
            head, figures = columns[i]
            value = figures.get(row.key)
            value = "not measured" if value is None else value
            if row.verdict(value):
                found.append(f"{name}, {head}: {row.text(value)}, allowed: {row.budget()}")
        exponent = row.exponent(columns[0][1], columns[-1][1]) if with_growth else None
        if grows_too_fast(row, exponent):
            found.append(f"{name}: growth exponent {exponent:.2f}, allowed: {row.growth_limit()}")
    return found


def heading(text):
    """First lines above a table: the day, the machine with its speed, and `text`."""
    return textwrap.fill(f"{time.strftime('%Y-%m-%d')}, {described_machine()}, all in one run; {text}", 100)


def split_at_marks(path, name):
    """What precedes and follows the table of this name in a document."""
    page, begin, end = open(path).read(), f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    if begin not in page or end not in page:
        sys.exit(f"{path} has no marks {begin} … {end}")
    return page.split(begin)[0] + begin, end + page.split(end)[1]


def write(path, name, text):
    before, after = split_at_marks(path, name)
    with open(path, "w") as f:
        f.write(f"{before}\n{text}\n{after}")


def finish(text, missed, path, name):
    """Prints the text, writes it into a document if `path` is given, and exits with 1 if anything is missed."""
    print(text)
    if path:
        write(path, name, text)
    for line in missed:
        print(f"MISSED: {line}", file=sys.stderr)
    sys.exit(1 if missed else 0)
