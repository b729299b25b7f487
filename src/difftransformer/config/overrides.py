"""Description of overridden settings, for the labels of rows."""

from dataclasses import replace

from difftransformer.config.inheritance import flat
from difftransformer.config.resolve import ConfigResolver


def overrides(resolver: ConfigResolver, run: str) -> str:
    """Return a description of the overrides of a run, of its parent runs and of matched runs.

    Matched runs are the runs that it is sized to match.

    Returns:
        Settings with their new values, such as "model.attention.lambda_init = 0.3". Settings of
        another run follow its name. Empty if no setting is overridden.
    """
    if not resolver.project.overrides:
        return ""
    configured = replace(resolver, project=resolver.project.model_copy(update={"overrides": {}}))
    changes = []
    for name in _behind(resolver, run):
        if name in resolver.project.overrides:
            before = dict(flat(configured.run(name).model_dump(mode="json")))
            before |= flat(configured.layers(name).values)  # unscaled sizes
            after = flat(resolver.project.overrides[name])
            changed = [f"{key} = {new}" for key, new in after if before.get(key) != new]
            changes += [change if name == run else f"{name}: {change}" for change in changed]
    return ", ".join(changes)


def _behind(resolver: ConfigResolver, run: str) -> list[str]:
    """Return a run, the runs whose weights it starts from, and the runs matched in size."""
    names, waiting = dict[str, None](), [run]
    while waiting:
        name = waiting.pop(0)
        if name in names or resolver.runs[name].pretrained is not None:
            continue
        names[name] = None
        parent, match = resolver.entry(name).init_from, resolver.entry(name).match
        waiting += [other for other in (parent, match.to if match else None) if other is not None]
    return list(names)
