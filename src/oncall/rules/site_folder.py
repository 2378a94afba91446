"""Where the site's rulebooks lie: $XDG_CONFIG_HOME/oncall/rules, or where the configuration says.

    [rules]
    folder = "/etc/oncall/rules"     # or "rules": beside the configuration file

Apart from reading them (oncall.rules.site), so that the console can ask before it is shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path

from oncall.core.configuration import configuration_folder, read_tables
from oncall.core.errors import BadInput

_KEY = "folder"


def site_folder(files: Sequence[Path] | None = None) -> tuple[Path, list[BadInput]]:
    """The folder, which need not exist; and what is wrong with the configuration of it,
    in which case it is the default one."""
    folder = configuration_folder() / "rules"
    tables, problems = read_tables("rules", files)
    for table in tables:
        for key, value in table.values.items():
            if key != _KEY:
                near = "did you mean" if get_close_matches(key, [_KEY]) else "there is only"
                message = f"unknown option `{key}` in [rules] ({near} {_KEY}?)"
                problems.append(BadInput(str(table.path), message))
            elif not isinstance(value, str) or not value.strip() or "\0" in value:
                message = f'[rules] folder is text such as "/etc/oncall/rules", not {value!r}'
                problems.append(BadInput(str(table.path), message))
            else:
                folder = table.path.parent / Path(value).expanduser()
    return folder, problems
