"""Edits of a workflow file that leave every other byte as it was.

The file is read twice: as text, and as YAML nodes that know where in the text they stand (`outline`). An edit is
worked out on both (`edits`, `removal`): as text put in or cut out at node positions, and as the same change of the
parsed data. The new text is given out only if it parses to exactly that data; else, and whenever the place does not
allow the edit, `SpliceError` says why and nothing has happened.
"""

from tools.splice.edits import Entry, add_after, add_at_end, add_parallel
from tools.splice.outline import Outline, SpliceError
from tools.splice.removal import remove

__all__ = ["Entry", "Outline", "SpliceError", "add_after", "add_at_end", "add_parallel", "remove"]
