"""Everything in it is Any: see pyproject.toml."""
from typing import Any

def __getattr__(name: str) -> Any: ...
