"""Lists of chats as SQL: filters, pages, and what changed since (A-06, A-07). Only looks."""

from typing import Any

from treadle.stores.listing import Wanted, beginnings, folded
from treadle.stores.postgres.rows import LISTED

# $1 is always the time that leases are judged by.
GET = f"SELECT {LISTED} FROM chats WHERE id = $2"
CHANGES = (
    f"SELECT {LISTED} FROM chats WHERE changed > $2 AND changed < treadle_settled() "
    "AND ($3::text IS NULL OR owner = $3) ORDER BY changed LIMIT $4"
)
LAST_CHANGE = "SELECT coalesce(max(changed), 0) FROM chats WHERE changed < treadle_settled()"
HEADS = "SELECT id, head FROM chats WHERE id = ANY ($1::text[])"


def listing(wanted: Wanted, limit: int) -> tuple[str, list[Any]]:
    """The query, and its values after $1. Only what is asked for is a condition."""
    values: list[Any] = []

    def value(given: object) -> str:
        values.append(given)
        return f"${len(values) + 1}"

    conditions = ["true"]
    if wanted.owner is not None:
        conditions.append(f"owner = {value(wanted.owner)}")
    if wanted.archived is not None:
        conditions.append(f"archived = {value(wanted.archived)}")
    if wanted.status is not None:
        conditions.append(f"status = {value(wanted.status)}")
    if wanted.label is not None:
        conditions.append(f"{value(wanted.label.replace(chr(0), ''))} = ANY (labels)")
    if wanted.query:
        found = [f"position({value(folded(wanted.query))} IN title) > 0"]
        found += [f"starts_with(id, {value(folded_out(begin))})" for begin in beginnings(wanted.query)]
        conditions.append(f"({' OR '.join(found)})")
    if wanted.before is not None:
        updated_ms, chat = wanted.before
        conditions.append(f"(updated_ms, id) < ({value(updated_ms)}, {value(chat)})")
    query = f"SELECT {LISTED} FROM chats WHERE {' AND '.join(conditions)} ORDER BY updated_ms DESC, id DESC"
    return f"{query} LIMIT {value(limit or None)}", values


def folded_out(begin: str) -> str:
    """The beginning of an id; with a NUL in it, which no id has, one that none begins with."""
    return begin.replace("\0", "\ufffd")
