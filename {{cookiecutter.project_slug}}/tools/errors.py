"""The errors of `tools`: what a person can cause, and put right.

UserError                   one line that says what, where and what to do; `./pipeline` prints it and exits with 1
  SettingsError             settings.py: a setting is missing or wrong
  BadRow                    loading.py: a row of a file to load
  PortInUseError            emulators/hosting.py
  ScheduleError             emulators/scheduler.py
  StartError                emulators/services.py: a function's process did not come up (with what it said)
"""

from __future__ import annotations


class UserError(Exception):
    """Shown as it is, without a traceback."""
