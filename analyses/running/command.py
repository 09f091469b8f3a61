"""What the command lines of analyses and figures share: one-line errors, and listings read from the sources."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from interp.outside import one_line as one_line
from models.running.command import MAKES_FOLDERS as MAKES_FOLDERS
from models.running.command import Parser as Parser
from models.running.command import listed as listed
from models.running.command import number as number
from models.running.command import path as path
from models.running.command import path_text as path_text
from models.running.command import seed as seed
from models.running.command import whole_number as whole_number
from models.running.command_line import BAD_INPUT as BAD_INPUT
from models.running.command_line import FAILED as FAILED
from models.running.command_line import OK as OK
from models.running.command_line import READER_GONE
from models.running.command_line import BadInput as BadInput
from models.running.command_line import Entry as Entry
from models.running.command_line import read_entries as read_entries
from models.running.interrupt import INTERRUPTED
from models.running.terminal import discard_output, error_line
from models.running.terminal import say as say
from models.running.terminal import say_loading as say_loading
from models.running.terminal import show as show


@contextlib.contextmanager
def failing_in_one_line() -> Iterator[None]:
    """Bad input, a full disk or too little memory leave one line on stderr and exit code 2.

    Anything else is a bug and keeps its traceback.
    """
    try:
        yield
        print(end="", flush=True)
    except BrokenPipeError:  # the reader of the pipe, e.g. `head`, has closed it: end without a message
        discard_output()
        raise SystemExit(READER_GONE) from None
    except (BadInput, OSError, MemoryError) as error:
        say(error_line(error))
        try:
            print(end="", flush=True)
        except OSError:
            discard_output()
        raise SystemExit(BAD_INPUT) from None
    except KeyboardInterrupt:
        say("interrupted")
        raise SystemExit(INTERRUPTED) from None
