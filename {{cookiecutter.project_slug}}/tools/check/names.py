"""Names and their lengths: what Google refuses in the middle of a deploy, or cuts."""

from __future__ import annotations

from collections.abc import Iterator

from tools.check.findings import Finding, Project
from tools.settings import SettingsError, workflow_environment

SERVICE_LIMIT = 49  # characters of a Cloud Run service's name
LABEL_LIMIT = 63  # characters of a part of a host name
VARIABLE_LIMIT = 20  # variables of a workflow
ACCOUNT_LIMIT = 100  # service accounts a project has, unless its quota was raised
NUMBER = "0" * 12  # a project's number has up to 12 digits

RESERVED = frozenset("foundation schedule scheduler workflow build steps deployer github".split())
"""Names that deploy.sh gives to parts and accounts of its own."""

MEMORY_FOR_CPU = {"4": 2048, "6": 4096, "8": 4096}  # MiB that Cloud Run asks for


def names(project: Project) -> Iterator[Finding]:
    """Names of services and steps, the sizes of the workflow's variables, and what Cloud Run does not combine."""
    settings = project.settings
    for step in settings.steps.values():
        place = (f"functions/{step.name}/step.env", 1)
        service = settings.service(step.name)
        if step.name in RESERVED:
            yield Finding(
                "error",
                *place,
                f"deploy.sh has a part or an account called {step.name} of its own",
                "Rename the step's folder",
            )
        if len(service) > SERVICE_LIMIT:
            yield Finding(
                "error",
                *place,
                f"the service {service} has {len(service)} characters; Cloud Run takes {SERVICE_LIMIT}, so the "
                f"deploy fails there",
                f"Shorten PIPELINE or the step's name by {len(service) - SERVICE_LIMIT}",
            )
        elif len(f"{service}-{NUMBER}") > LABEL_LIMIT:
            yield Finding(
                "warning", *place, f"the URL of {service} is only known after its first deploy", "Shorten the name"
            )
        if float(step.cpu) < 1 and step.threads > 1:
            yield Finding(
                "error",
                *project.place("CPU", step.name),
                f"Cloud Run gives less than one CPU only to one request at a time, and THREADS is {step.threads}: "
                f"the deploy fails",
                "Set THREADS=1, or CPU=1",
            )
        memory = int(step.memory[:-2]) * (1024 if step.memory.endswith("Gi") else 1)
        if memory < MEMORY_FOR_CPU.get(step.cpu, 0):
            yield Finding(
                "error",
                *project.place("MEMORY", step.name),
                f"Cloud Run gives {step.cpu} CPUs only with {MEMORY_FOR_CPU[step.cpu]} MiB or more: the deploy fails",
                f"Set MEMORY={MEMORY_FOR_CPU[step.cpu]}Mi",
            )
        for secret in step.secrets:
            if secret.version == "latest":
                yield Finding(
                    "error",
                    *project.place("SECRETS", step.name),
                    f"{secret.name} is the latest version of {secret.secret}: it changes under a running pipeline",
                    "Name a version by its number",
                )
    accounts = 4 + (len(settings.steps) if settings.step_accounts == "each" else 1)
    if accounts > ACCOUNT_LIMIT:
        yield Finding(
            "warning",
            *project.place("STEP_ACCOUNTS"),
            f"{accounts} service accounts are more than a project's {ACCOUNT_LIMIT}",
            "Set STEP_ACCOUNTS=shared, or ask for a higher quota",
        )
    urls = {step: f"https://{settings.service(step)}-{NUMBER}.{settings.region}.run.app" for step in settings.steps}
    try:
        workflow_environment(urls)
    except SettingsError as error:
        yield Finding("error", "workflows/main.yaml", 1, str(error), "Shorten names, or split the pipeline in two")
