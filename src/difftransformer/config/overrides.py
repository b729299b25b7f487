"""Settings of runs that `overrides` overrides; tables name them in the labels of the rows."""

from dataclasses import replace

from difftransformer.config.inheritance import flat
from difftransformer.config.resolve import ConfigResolver


def overrides(resolver: ConfigResolver, run: str) -> str:
    """Return what `overrides` changes of a run, and of runs that it continues or is sized after.

    Returns:
        Settings with their new values, "model.attention.lambda_init = 0.3"; those of another run
        after its name. Empty where everything is as configured.
    """
    if not resolver.project.overrides:
        return ""
    configured = replace(resolver, project=resolver.project.model_copy(update={"overrides": {}}))
    found = []
    for one in _behind(resolver, run):
        if one in resolver.project.overrides:
            before = dict(flat(configured.run(one).model_dump(mode="json")))
            before |= flat(configured.layers(one).values)  # sizes before factors are multiplied in
            after = flat(resolver.project.overrides[one])
            changed = [f"{key} = {new}" for key, new in after if before.get(key) != new]
            found += [change if one == run else f"{one}: {change}" for change in changed]
    return ", ".join(found)


def _behind(resolver: ConfigResolver, run: str) -> list[str]:
    """A run, those that it continues, and those that these are sized after."""
    found, waiting = dict[str, None](), [run]
    while waiting:
        one = waiting.pop(0)
        if one in found or resolver.runs[one].pretrained is not None:
            continue
        found[one] = None
        parent, match = resolver.entry(one).init_from, resolver.entry(one).match
        waiting += [other for other in (parent, match.to if match else None) if other is not None]
    return list(found)
