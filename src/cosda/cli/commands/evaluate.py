"""cosda evaluate: measure a model on a labelled domain."""

from __future__ import annotations

from cosda.cli.options import AsJson, ExpertsInMemory, Images, KnownDomain, Loading, ModelFolder, Place, Quiet, grouped
from cosda.cli.progress import open_watcher
from cosda.cli.tables import print_json


@grouped
def evaluate(
    model: ModelFolder,
    images: Images,
    loading: Loading,
    place: Place,
    domain: KnownDomain = None,
    experts_in_memory: ExpertsInMemory = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Measure a model on a labelled domain.

    Images lie in one folder per class, named as the model's classes. A domain bank is not told their domain, unless
    --domain names it.

    Example:  cosda evaluate adapted-model office31/webcam
    """
    from cosda import api
    from cosda.cli.tables import print_evaluation

    result = api.evaluate(
        loading.load(model),
        images,
        domain=domain,
        experts_in_memory=experts_in_memory,
        machine=place.machine(),
        watcher=open_watcher(quiet),
    )
    if as_json:
        print_json(result.as_json())
    else:
        print_evaluation(result)
