"""`./pipeline check`: what would go wrong in the cloud, found before it does.

Each module looks at one thing and has one public function that yields findings: `budget` (times), `schedule` (cron and
time zone), `names` (lengths and limits), `receivers` (URLs), `wiring` (the workflow), `sources` (the functions' code).
`cost` estimates a month. `command` puts them together.
"""
