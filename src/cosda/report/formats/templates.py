"""Pages are made of templates."""

from __future__ import annotations

from jinja2 import Environment, PackageLoader, StrictUndefined


def environment() -> Environment:
    """The templates of pages; whatever is put into them is escaped."""
    made = Environment(
        loader=PackageLoader("cosda.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.globals["share"] = "{:.0%}".format
    return made
