"""A table as a self-contained HTML page."""

import re
from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined

from difftransformer.reporting.document import TableDocument
from difftransformer.reporting.formats.table_text import VERDICT_SYMBOLS, table_remarks
from difftransformer.reporting.number_format import format_count, format_signed, pluralize


def to_html(table: TableDocument) -> str:
    """Return a table as a self-contained HTML page.

    Each cell opens to its seeds and the jobs that computed them.
    """
    return environment("templates").get_template("table.html.j2").render(table=table)


def anchor(text: str) -> str:
    """Return a text converted to a valid id of an HTML element."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", text)


@cache
def environment(folder: str) -> Environment:
    """Return a Jinja environment for the templates in a folder.

    Values are escaped; an undefined name is an error.
    """
    environment = Environment(
        loader=PackageLoader("difftransformer.reporting", folder),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["anchor"] = anchor
    environment.filters["amount"] = format_count
    environment.filters["pluralize"] = pluralize
    environment.filters["signed"] = lambda value: "" if value is None else format_signed(value, 3)
    environment.globals["table_remarks"] = table_remarks
    environment.globals["verdict_symbols"] = VERDICT_SYMBOLS
    return environment
