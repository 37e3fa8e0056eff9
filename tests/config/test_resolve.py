"""Where the settings of a run come from, and what its folder is called."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from importlib import resources

import pytest

from cosda.config import resolve as config
from cosda.config.catalogue import all_methods, settings_rows
from cosda.config.presets import ablations, load_preset
from cosda.config.request import Change, Data, Request, parse_changes
from cosda.config.resolve import resolve
from cosda.config.schema import SECTIONS
from cosda.errors import CosdaError
from cosda.methods import METHODS
from cosda.run.prepare import new_model
from cosda.settings import settings_of

PRESETS = sorted(p.name.removesuffix(".toml") for p in (resources.files("cosda") / "presets").iterdir())
BENCHMARKS = [name for name in PRESETS if name != "ablations"]
CHAIN = ("one", "two", "three")
FACTS = {field.name for field in fields(Data)}


def plan_of(method="cosda", **changed):
    """A plan for made-up data; ``changes`` are texts as of --set."""
    facts = {"benchmark": "own", "domains": CHAIN, "classes": ("a", "b"), "protocol": "inductive", "fingerprint": "f0"}
    data = Data(**{key: changed.pop(key, facts.get(key)) for key in {*facts, *(changed.keys() & FACTS)}})
    changes = parse_changes(changed.pop("changes", ()))
    return resolve(data, Request(method, changes=changes, **changed))


@pytest.fixture
def preset(monkeypatch):
    """``preset(table)`` is the preset of the benchmark 'own' in this test."""

    def put(table):
        real = load_preset
        monkeypatch.setattr(config, "load_preset", lambda name: table if name == "own" else real(name))

    return put


# --- Precedence -------------------------------------------------------------------------------------------------------

LAYERS = {
    "method": {"cosda": {"statistics_momentum": 0.2, "gate": 0.2, "information": 0.2, "adapt": {"lr": 0.3}}},
    "adapt": {"lr": 0.2, "lr_end": 0.1, "batch_size": 7},
    "authors": {"method": {"cosda": {"information": 0.3}}},
}


def test_each_layer_outranks_the_one_before_and_is_named(preset):
    preset(LAYERS)
    changes = ["temperature=0.5", "adapt.epochs=3"]
    plan = plan_of(variant="authors", ablation="no-mixup", changes=changes)
    method, adapt = plan.settings["method"], plan.settings["adapt"]
    got = {
        "consistency": (method["consistency"], plan.origins["method.consistency"]),
        "fold": (method["fold"], plan.origins["method.fold"]),
        "batch_size": (adapt["batch_size"], plan.origins["adapt.batch_size"]),
        "lr": (adapt["lr"], plan.origins["adapt.lr"]),
        "gate": (method["gate"], plan.origins["method.gate"]),
        "information": (method["information"], plan.origins["method.information"]),
        "mixup_beta": (method["mixup_beta"], plan.origins["method.mixup_beta"]),
        "temperature": (method["temperature"], plan.origins["method.temperature"]),
        "epochs": (adapt["epochs"], plan.origins["adapt.epochs"]),
    }
    assert got == {
        "consistency": (1.0, "default"),
        "fold": (True, "variant authors"),
        "batch_size": (7, "preset own"),
        "lr": (0.3, "preset own, cosda"),
        "gate": ((0.2, 0.2), "preset own, cosda"),  # the variant says 0.5 to 0.7
        "information": (0.3, "preset own, authors, cosda"),
        "mixup_beta": (0.0, "ablation no-mixup"),
        "temperature": (0.5, "--set temperature=0.5"),
        "epochs": (3, "--set adapt.epochs=3"),
    }


def test_an_ablation_outranks_presets_and_the_command_line_outranks_ablations(preset):
    preset({"method": {"cosda": {"information": 0.4}}})
    assert plan_of().settings["method"]["information"] == 0.4
    assert plan_of(ablation="no-mi").settings["method"]["information"] == 0
    assert plan_of(ablation="no-mi", changes=["information=0.7"]).settings["method"]["information"] == 0.7


def test_the_section_of_another_method_or_variant_is_not_read(preset):
    preset(LAYERS)
    plan = plan_of("bn")
    assert plan.settings["adapt"]["lr"] == 0.2
    assert plan_of(variant="paper").settings["method"]["information"] == 0.2


def test_the_last_of_two_changes_counts():
    assert plan_of(changes=["information=0.1", "information=0.2"]).settings["method"]["information"] == 0.2


def test_a_bare_key_is_looked_up_in_the_method_first():
    plan = plan_of(changes=["momentum=0.5", "lr=0.01"])
    assert plan.settings["method"]["momentum"] == (0.5, 0.5)
    assert (plan.settings["adapt"]["momentum"], plan.settings["adapt"]["lr"]) == (0.9, 0.01)
    assert plan_of("bn", changes=["momentum=0.5"]).settings["adapt"]["momentum"] == 0.5


def test_what_a_given_model_settled_cannot_be_changed():
    model = replace(new_model(plan_of(changes=["network.encoder=small", "data.size=16"])), classes=("a", "b"))
    plan = plan_of(model=model, changes=["data.size=16"])
    assert (plan.settings["data"]["size"], plan.model) == (16, model.key)
    assert plan_of(model=model).origins["data.size"] == "given model"
    with pytest.raises(CosdaError, match=r"--set data.size=32: the given model was made with data.size = 16"):
        plan_of(model=model, changes=["data.size=32"])
    with pytest.raises(CosdaError, match="the model knows the classes a, b; own has a, c"):
        plan_of(model=model, classes=("a", "c"))


def test_a_change_names_the_option_that_made_it():
    asked = Request.of(
        "cosda", CHAIN, epochs=3, carry="interpolate=0.5", settings={"temperature": 0.5, "gate": [0.1, 0.2]}
    )
    plan = resolve(Data("own", CHAIN, ("a", "b")), asked)
    assert plan.origins["adapt.epochs"] == "epochs=3"
    assert plan.origins["adapt.carry"] == "carry='interpolate=0.5'"
    assert plan.origins["method.temperature"] == "settings: temperature=0.5"
    assert plan.settings["method"]["gate"] == (0.1, 0.2)
    assert hash(asked) == hash(Request.of("cosda", CHAIN, **OPTIONS)), "a job is found again by its request"


OPTIONS = {"epochs": 3, "carry": "interpolate=0.5", "settings": {"temperature": 0.5, "gate": [0.1, 0.2]}}


def test_an_unknown_option_is_a_type_error_with_the_nearest():
    with pytest.raises(TypeError, match=r"no option 'epoch'\. Did you mean 'epochs'"):
        Request.of("cosda", epoch=3)


def test_source_training_has_epochs_of_its_own():
    asked = Request.of("source", ("one",), epochs=3, settings={"adapt.epochs": 5}).of_source()
    assert asked.changes[0] == Change("source.epochs", 3, "epochs=3")


def test_feature_vectors_need_no_encoder():
    assert plan_of(input_width=12).settings["network"]["encoder"] == "identity"


@pytest.mark.parametrize(("method", "epochs"), [("source", 0), ("bn", 1)])
def test_epochs_of_a_method_without_a_choice_are_fixed_for_every_target(method, epochs):
    plan = plan_of(method, changes=["epochs=9", "stage.two.epochs=8"])
    assert [plan.adapt(target).epochs for target in CHAIN[1:]] == [epochs, epochs]


# --- What is special to a target --------------------------------------------------------------------------------------


def test_a_stage_override_counts_for_that_target_alone():
    plan = plan_of(changes=["stage.two.temperature=0.5", "stage.two.adapt.epochs=3", "epochs=4"])
    assert [plan.adapt(t).epochs for t in ("two", "three")] == [3, 4]
    assert [plan.make_method(t).temperature for t in (None, "two", "three")] == [0.07, 0.5, 0.07]
    assert plan.origins["stage.two.adapt.epochs"] == "--set stage.two.adapt.epochs=3"
    assert plan.origins["method.temperature"] == "default"


STAGED = {"stage": {"two": {"adapt": {"epochs": 10}, "method": {"cosda": {"information": 0.5}, "bn": {"nothing": 1}}}}}


def test_a_preset_may_treat_targets_apart(preset):
    preset(STAGED | {"adapt": {"epochs": 30}})
    plan = plan_of()
    assert [plan.adapt(t).epochs for t in ("two", "three")] == [10, 30]
    assert plan.make_method("two").information == 0.5
    assert plan.origins["stage.two.method.information"] == "preset own, two"
    assert plan_of(domains=("one", "three")).stages == {}


def test_ablation_and_command_line_outrank_what_a_preset_sets_for_one_target(preset):
    preset(STAGED)
    plan = plan_of(ablation="no-mi", changes=["epochs=2"])
    assert plan.adapt("two").epochs == 2
    assert plan.make_method("two").information == 0
    assert not any(key.startswith("stage.") for key in plan.origins)


@pytest.mark.parametrize("order", [1, -1])
def test_what_is_special_wins_in_any_order_on_the_command_line(order):
    plan = plan_of(changes=["epochs=2", "stage.two.epochs=5"][::order])
    assert [plan.adapt(t).epochs for t in ("two", "three")] == [5, 2]


# --- Wrong input ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"method": "cosad"}, ["no method 'cosad'", "'cosda'"]),
        ({"variant": "author"}, ["no variant 'author'", "'authors'", "paper, authors"]),
        ({"method": "bn", "variant": "paper"}, ["no variant 'paper'", "Known: none"]),
        ({"ablation": "no-mu"}, ["no ablation of cosda 'no-mu'", "'no-mi'"]),
        ({"method": "bn", "ablation": "no-mi"}, ["no ablation of bn 'no-mi'"]),
        ({"changes": ["temprature=1"]}, ["--set temprature=1", "'temperature'"]),
        ({"changes": ["adapt.epoch=1"]}, ["no setting 'adapt.epoch'", "'adapt.epochs'"]),
        ({"changes": ["adpat.epochs=1"]}, ["'adapt.epochs'"]),
        ({"changes": ["temperature"]}, ["write key=value"]),
        ({"changes": ["=1"]}, ["--set =1"]),
        ({"changes": ["a.b.c=1"]}, ["no setting 'a.b.c'"]),
        ({"changes": ["temperature=hot"]}, ["--set temperature=hot", "'hot'", "a number, at least 1e-06"]),
        ({"changes": ["stage.tow.epochs=1"]}, ["'tow' is no target", "'two'", "two, three"]),
        ({"changes": ["stage.one.epochs=1"]}, ["'one' is no target"]),
        ({"changes": ["stage.two.epoch=1"]}, ["no setting"]),
        ({"changes": ["stage.two.source.epochs=1"]}, ["can differ between targets"]),
        ({"changes": ["adapt.epochs=inf"]}, ["adapt.epochs=inf", "a whole number"]),
        ({"changes": ["source.holdout=0.95"]}, ["from 0 to 0.9"]),
    ],
)
def test_wrong_words_are_named_with_the_nearest(changed, words):
    with pytest.raises(CosdaError) as caught:
        plan_of(**changed)
    for word in words:
        assert word in str(caught.value)


def test_a_wrong_key_or_value_in_a_preset_is_found(preset):
    preset({"adapt": {"epoch": 3}})
    with pytest.raises(CosdaError, match=r"preset own: adapt has no setting 'epoch'\. Did you mean 'epochs'"):
        plan_of()
    preset({"method": {"cosda": {"adapt": {"epochs": "x"}}}})
    with pytest.raises(CosdaError, match="preset own, cosda: epochs = 'x'"):
        plan_of()


@pytest.mark.parametrize("changes", [["lr=0.0005"], ["lr_end=0.01"], ["source.lr_end=1"], ["stage.three.lr_end=0.01"]])
def test_a_rate_that_would_rise_is_refused(changes):
    with pytest.raises(CosdaError, match="rates never rise"):
        plan_of(changes=changes)


def test_a_constant_rate_is_possible():
    assert plan_of(changes=["lr=0.001"]).adapt("two").lr == 0.001


# --- Names ------------------------------------------------------------------------------------------------------------


def test_the_same_plan_has_the_same_name():
    assert plan_of() == plan_of()
    assert plan_of().name == plan_of().name


@pytest.mark.parametrize(
    "changed",
    [
        {"seed": 1},
        {"fingerprint": "f1"},
        {"source_fingerprint": "g"},
        {"domains": ("one", "three", "two")},
        {"classes": ("a", "c")},
        {"variant": "authors"},
        {"ablation": "no-mi"},
        {"changes": ["temperature=0.1"]},
        {"changes": ["stage.two.temperature=0.1"]},
        {"changes": ["source.epochs=3"]},
        {"method": "bn"},
        {"protocol": "transductive"},
    ],
)
def test_whatever_changes_numbers_changes_the_name(changed):
    assert plan_of(**changed).name != plan_of().name


def test_the_name_says_what_it_is():
    assert plan_of(ablation="no-mi", seed=4).name.startswith("own-cosda-no-mi-s4-")


@pytest.mark.parametrize(
    ("changed", "label"),
    [
        ({}, "cosda"),
        ({"variant": "default"}, "cosda"),
        ({"variant": "paper"}, "cosda (paper)"),
        ({"variant": "authors"}, "cosda (authors)"),
        ({"ablation": "no-mi"}, "cosda (no-mi)"),
        ({"variant": "authors", "ablation": "no-mi"}, "cosda (authors, no-mi)"),
        ({"method": "bn"}, "bn"),
        ({"changes": ["carry=interpolate"]}, "cosda (carry interpolate 0.5)"),
        ({"changes": ["carry=along=0.25"]}, "cosda (carry along 0.25)"),
        ({"changes": ["carry=auto"]}, "cosda (carry auto)"),
        ({"changes": ["carry=auto=0.3"]}, "cosda (carry auto 0.3)"),
    ],
)
def test_labels(changed, label):
    plan = plan_of(**changed)
    assert plan.label == plan.as_json()["label"] == label


def test_a_plan_survives_json():
    plan = plan_of(variant="authors", changes=["stage.two.gate=0.3", "data.size=none"])
    once = json.loads(json.dumps(plan.as_json(), allow_nan=False))
    assert json.dumps(once, sort_keys=True) == json.dumps(plan.as_json(), sort_keys=True)
    assert (once["kind"], once["stages"]["two"]["method"]["gate"]) == ("adapt", [0.3, 0.3])
    assert once["settings"]["data"]["size"] is None


# --- What is shipped --------------------------------------------------------------------------------------------------


def every_combination():
    for benchmark in [*BENCHMARKS, "own"]:
        for method, cls in METHODS.items():
            for variant in [None, *cls.variants]:
                for ablation in [None, *ablations(method)]:
                    yield benchmark, method, variant, ablation


@pytest.mark.parametrize(("benchmark", "method", "variant", "ablation"), list(every_combination()))
def test_every_preset_resolves_for_every_method_variant_and_ablation(benchmark, method, variant, ablation):
    plan = plan_of(method, benchmark=benchmark, variant=variant, ablation=ablation)
    assert plan.make_method().settings() == plan.settings["method"]
    assert all([plan.input, plan.network, plan.source_training, plan.edges, plan.adapt("two")])


@pytest.mark.parametrize("benchmark", BENCHMARKS)
def test_no_table_of_a_preset_is_read_by_nobody(benchmark):
    table = load_preset(benchmark)
    variants = {variant for cls in METHODS.values() for variant in cls.variants}
    assert set(table) <= {*SECTIONS, "method", "stage", *variants}
    for part in [table, *(table[variant] for variant in variants & set(table))]:
        assert set(part) <= {*SECTIONS, "method", "stage", *variants}
        assert set(part.get("method", {})) <= set(METHODS)
        for stage in part.get("stage", {}).values():
            assert set(stage) <= {"adapt", "method"}
            assert set(stage.get("method", {})) <= set(METHODS)


def test_ablations_are_of_known_methods():
    assert set(load_preset("ablations")) <= set(METHODS)


def test_a_benchmark_without_a_preset_has_none():
    assert load_preset("somebodys-folder") == {}


def test_the_papers_numbers():
    visda = plan_of(benchmark="visda")
    assert [visda.settings["adapt"][k] for k in ("epochs", "batch_size", "lr", "lr_end")] == [20, 64, 4e-3, 2e-3]
    assert plan_of(benchmark="visda", variant="authors").settings["method"]["gate"] == (0.5, 0.8)
    net = plan_of(benchmark="domainnet")
    assert net.settings["method"]["momentum"] == (0.95, 0.99)
    assert (net.settings["method"]["information"], net.settings["network"]["bottleneck"]) == (0.1, 512)
    default = plan_of().settings["method"]
    assert (default["temperature"], default["mixup_beta"], default["momentum"]) == (0.07, 2.0, (0.9, 0.99))


# --- The catalogue ----------------------------------------------------------------------------------------------------


def test_the_catalogue_lists_methods_and_where_their_values_come_from():
    assert [row["name"] for row in all_methods()] == list(METHODS)
    assert "no-mi" in next(row for row in all_methods() if row["name"] == "cosda")["ablations"]
    rows = {row["key"]: row for row in settings_rows("cosda", "visda", "authors", "no-mi")}
    assert (rows["method.gate"]["value"], rows["method.gate"]["symbol"]) == ((0.5, 0.8), "κ")
    assert rows["method.gate"]["origin"] == "preset visda, authors, cosda"
    assert rows["method.information"]["origin"] == "ablation no-mi"
    assert len(rows) == sum(len(settings_of(cls)) for cls in [METHODS["cosda"], *SECTIONS.values()])


def test_feature_vectors_have_no_encoder_and_no_size(preset):
    preset({"data": {"size": 32}, "network": {"encoder": "small"}})
    plan = plan_of(input_width=12)
    assert (plan.settings["network"]["encoder"], plan.settings["data"]["size"]) == ("identity", None)
    for change in ("network.encoder=small", "data.size=16"):
        with pytest.raises(CosdaError, match=f"--set {change}: this is for images"):
            plan_of(input_width=12, changes=[change])
