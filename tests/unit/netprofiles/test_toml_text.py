"""Plain data as TOML: any text comes back as it was."""

from __future__ import annotations

import tomllib

from hypothesis import given, settings
from hypothesis import strategies as st

from wanbench.netprofiles.toml_text import document, value

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)  # UTF-8 has no surrogates
PLAIN = st.recursive(
    st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=300, derandomize=True, deadline=None, database=None)
@given(st.dictionaries(TEXT, PLAIN, max_size=4))
def test_what_is_written_is_what_is_read(plain):
    assert tomllib.loads(f"x = {value(plain)}")["x"] == plain
    assert tomllib.loads(document(plain)) == plain


def test_names_of_any_script_stay_readable():
    assert value("東京 🗼") == '"東京 🗼"'
    assert value("London, UK") == '"London, UK"'
