"""Commands of those who operate a pipeline: on the laptop's chain and on Google Cloud alike.

place       where the pipeline is: settings, Firestore, the Executions API; options that all commands have
executions  executions as the API lists them
runs        runs as they stand: records joined with their executions
naming      short run ids and slots as names of runs
history     what was logged of a run: .local/events.jsonl, or Cloud Logging
schedule    which slots a schedule demanded, by the history of its deployments
tables      columns of text
errors      what Google answers, in words of what to do
"""
