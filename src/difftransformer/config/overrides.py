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
    changes = []
    for name in _behind(resolver, run):
        if name in resolver.project.overrides:
            before = dict(flat(configured.run(name).model_dump(mode="json")))
            before |= flat(configured.layers(name).values)  # sizes before factors are multiplied in
            after = flat(resolver.project.overrides[name])
            changed = [f"{key} = {new}" for key, new in after if before.get(key) != new]
            changes += [change if name == run else f"{name}: {change}" for change in changed]
    return ", ".join(changes)


def _behind(resolver: ConfigResolver, run: str) -> list[str]:
    """A run, those that it continues, and those that these are sized after."""
    names, waiting = dict[str, None](), [run]
    while waiting:
        name = waiting.pop(0)
        if name in names or resolver.runs[name].pretrained is not None:
            continue
        names[name] = None
        parent, match = resolver.entry(name).init_from, resolver.entry(name).match
        waiting += [other for other in (parent, match.to if match else None) if other is not None]
    return list(names)
