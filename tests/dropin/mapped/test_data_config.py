"""Contract 003's `[data]` section, phases and annealing, and what is made of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.dropin.making import put_files

from tokenreel import Feed
from tokenreel.dropin import (
    DataConfig,
    DatasetSource,
    DistributedSampler,
    MixtureSampler,
    Pipeline,
    TrainingPhase,
    load_data_config,
    make_pipeline,
    make_recipe,
)
from tokenreel.errors import ConfigError

TOML = """
[model]
dim = 8
[data]
file_pattern = "*.npy"
pack_sequences = true
eos_token_id = 0
mix_temperature = 2.0
[[data.datasets]]
name = "web"
path = "{folder}/web"
weight = 9
[[data.datasets]]
path = "{folder}/books"
[[data.phases]]
start_step = 3
dataset_weights = {{ web = 1.0 }}
lr_scale = 0.5
[[data.phases]]
start_step = 5
dataset_weights = {{ web = 0, books = 2.5 }}
"""
YAML = """
data:
  file_pattern: "*.npy"
  pack_sequences: true
  eos_token_id: 0
  mix_temperature: 2.0
  datasets:
    - {{name: web, path: {folder}/web, weight: 9}}
    - {{path: {folder}/books}}
  phases:
    - {{start_step: 3, dataset_weights: {{web: 1.0}}, lr_scale: 0.5}}
    - {{start_step: 5, dataset_weights: {{web: 0, books: 2.5}}}}
"""
XML = """<run><data>
  <file_pattern>*.npy</file_pattern> <pack_sequences>true</pack_sequences>
  <eos_token_id>0</eos_token_id> <mix_temperature>2.0</mix_temperature>
  <datasets>
    <dataset><name>web</name><path>{folder}/web</path><weight>9</weight></dataset>
    <dataset><path>{folder}/books</path></dataset>
  </datasets>
  <phases>
    <phase>
      <start_step>3</start_step> <lr_scale>0.5</lr_scale>
      <dataset_weights><web>1.0</web></dataset_weights>
    </phase>
    <phase>
      <start_step>5</start_step>
      <dataset_weights><web>0</web><books>2.5</books></dataset_weights>
    </phase>
  </phases>
</data></run>
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    put_files(tmp_path / "web", {"a.npy": range(1, 401)})
    put_files(tmp_path / "books", {"b.npy": range(1001, 1301)})
    return tmp_path


@pytest.fixture
def config(folder: Path) -> DataConfig:
    return load_data_config(written(folder, "toml", TOML))


def written(folder: Path, suffix: str, text: str) -> Path:
    path = folder / f"train.{suffix}"
    path.write_text(text.format(folder=folder))
    return path


def test_one_section_in_three_formats_is_the_same(folder):
    texts = {"toml": TOML, "yaml": YAML, "xml": XML}
    configs = [load_data_config(written(folder, name, text)) for name, text in texts.items()]
    assert configs[0] == configs[1] == configs[2]
    assert [source.called for source in configs[0].datasets] == ["web", f"{folder}/books"]
    assert configs[0].phases[1].dataset_weights == {"web": 0, "books": 2.5}
    pipelines = [make_pipeline(item, seq_len=7, batch_size=4) for item in configs]
    first, *others = [
        [batch["labels"].tolist() for batch in pipeline.loader] for pipeline in pipelines
    ]
    assert others == [first, first] and len(first) > 10


def test_the_defaults_are_those_of_the_contract(tmp_path):
    (tmp_path / "a.toml").write_text('[data]\ndataset_path = "/path/to/tokens"\n')
    config = load_data_config(tmp_path / "a.toml")
    assert config == DataConfig(dataset_path="/path/to/tokens")
    assert (config.file_pattern, config.pack_sequences, config.tokenizer_path) == (
        "*.npy",
        False,
        "",
    )
    assert (config.mix_temperature, config.anneal_start_step) == (1.0, 0)


def test_overrides_are_dotted(folder):
    path = written(folder, "toml", TOML)
    overrides = ["data.datasets.web.weight=2.5", "data.mix_temperature=1"]
    config = load_data_config(path, overrides=overrides)
    assert (config.datasets[0].weight, config.mix_temperature) == (2.5, 1.0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("dataset_pth = 'x'", "unknown key 'dataset_pth'; did you mean 'dataset_path'?"),
        (
            "[[data.phases]]\nlr_scal = 1",
            "unknown key 'phases.0.lr_scal'; did you mean 'lr_scale'?",
        ),
        ("[[data.datasets]]\nweight = 1", "a dataset needs a path (expected path or hf_name)"),
        ("num_workers = -1", "bad num_workers (expected >= 0, got -1)"),
        ("mix_temperature = 0.0", "bad mix_temperature (expected > 0, got 0.0)"),
        ("[[data.phases]]\nstart_step = -1", "bad start_step of a phase (expected >= 0, got -1)"),
        ("[[data.phases]]\nlr_scale = 0.0", "bad lr_scale of a phase (expected > 0, got 0.0)"),
        (
            "[[data.phases]]\nstart_step = 2\n[[data.phases]]\nstart_step = 2",
            "the start_step of phases must grow (expected > 2, got 2)",
        ),
        (
            "anneal_start_step = 5\nanneal_weights = {a = 1}\n[[data.phases]]\nstart_step = 2",
            "phases and anneal_start_step exclude each other; make the annealing the last phase",
        ),
        ("anneal_start_step = -1", "bad anneal_start_step (expected >= 0, got -1)"),
        (
            "[[data.datasets]]\npath = 'x/a'\n[[data.datasets]]\npath = 'x/a'",
            "two datasets have the same name (got x/a, x/a)",
        ),
        ("[[data.datasets]]\npath = ''", "a dataset needs a path (expected path or hf_name)"),
        (
            "[[data.phases]]\ndataset_weights = {a = -1}",
            "bad dataset_weights of a phase: a (expected >= 0, got -1.0)",
        ),
    ],
)
def test_what_makes_no_sense_is_refused_and_named(tmp_path, text, message):
    path = tmp_path / "a.toml"
    path.write_text(f"[data]\n{text}\n")
    with pytest.raises(ConfigError) as caught:
        load_data_config(path)
    assert str(caught.value) == f"{path}: {message}"


def test_one_path_gives_a_plain_pipeline(folder):
    config = DataConfig(dataset_path=str(folder / "web"))
    pipeline = make_pipeline(config, seq_len=7, batch_size=5, num_replicas=2, rank=1, seed=3)
    assert isinstance(pipeline.sampler, DistributedSampler) and pipeline.sampler.seed == 3
    assert len(pipeline.dataset) == 50  # slices of seq_len + 1 tokens
    batch = next(iter(pipeline.loader))
    assert batch["input_ids"].shape == batch["labels"].shape == (5, 7)
    assert pipeline.phases.apply(100) == 1.0


def test_a_mixture_goes_through_its_phases(config):
    pipeline = make_pipeline(config, seq_len=7, batch_size=8)
    assert isinstance(pipeline.sampler, MixtureSampler)
    stream, shares, scales = iter(pipeline.loader), [], []
    for step in range(8):
        scales.append(pipeline.phases.apply(step))
        shares.append(float(next(stream)["dataset_idx"].float().mean()))
    assert scales == [1.0] * 3 + [0.5] * 2 + [1.0] * 3
    assert sum(shares[:3]) == pytest.approx(3 * 0.25, abs=0.25)  # 9 : 1, flattened
    assert sum(shares[3:5]) == pytest.approx(2 * 0.5, abs=0.25)  # 1 : 1, books as declared
    assert shares[5:] == [1.0] * 3


def test_a_resumed_run_goes_through_the_same_batches(config):
    def steps(pipeline: Pipeline, start: int, stop: int) -> list:
        stream, shown = iter(pipeline.loader), []
        for step in range(start, stop):
            pipeline.phases.apply(step)
            shown.append(next(stream)["input_ids"].tolist())
        return shown

    whole = steps(make_pipeline(config, seq_len=7, batch_size=8), 0, 9)
    for stop in range(1, 9):
        first = make_pipeline(config, seq_len=7, batch_size=8)
        begun = steps(first, 0, stop)
        second = make_pipeline(config, seq_len=7, batch_size=8)
        second.loader.load_state_dict(first.loader.state_dict())
        assert begun + steps(second, stop, 9) == whole


def test_annealing_is_one_phase(folder):
    sources = [DatasetSource(path=str(folder / name)) for name in ("web", "books")]
    config = DataConfig(datasets=sources, anneal_start_step=4, anneal_weights={"web": 0.0})
    assert config.all_phases == (TrainingPhase(start_step=4, dataset_weights={"web": 0.0}),)
    pipeline = make_pipeline(config, seq_len=7, batch_size=4)
    assert pipeline.phases.at(3) is None and pipeline.phases.at(4) == config.all_phases[0]
    assert pipeline.phases.apply(4) == 1.0
    assert next(iter(pipeline.loader))["dataset_idx"].tolist() == [1] * 4


def test_a_step_or_weights_alone_anneal_nothing():
    assert DataConfig(anneal_start_step=5).all_phases == ()
    assert DataConfig(anneal_weights={"web": 1.0}).all_phases == ()


def test_a_dataset_without_a_name_is_called_by_its_path_or_its_folder(folder):
    sources = [DatasetSource(path=str(folder / name)) for name in ("web", "books")]
    assert [source.name for source in sources] == ["", ""]
    for called in ("web", str(folder / "web")):
        phase = TrainingPhase(start_step=1, dataset_weights={called: 0.0})
        config = DataConfig(datasets=sources, phases=[phase])
        pipeline = make_pipeline(config, seq_len=7, batch_size=4)
        assert pipeline.dataset.dataset_names == [str(folder / "web"), str(folder / "books")]
        pipeline.phases.apply(1)
        assert next(iter(pipeline.loader))["dataset_idx"].tolist() == [1] * 4
    assert [source.name for source in make_recipe(config, seq_len=7, batch_size=4).sources] == [
        "web",
        "books",
    ]


def test_two_folders_of_one_name_are_told_apart_by_their_paths(folder):
    put_files(folder / "old" / "web", {"a.npy": range(2001, 2101)})
    paths = [str(folder / "web"), str(folder / "old" / "web")]
    sources = [DatasetSource(path=path) for path in paths]
    phase = TrainingPhase(start_step=0, dataset_weights={paths[0]: 0.0})
    pipeline = make_pipeline(DataConfig(datasets=sources, phases=[phase]), seq_len=7, batch_size=4)
    pipeline.phases.apply(0)
    assert next(iter(pipeline.loader))["input_ids"].min() > 2000
    unclear = TrainingPhase(start_step=0, dataset_weights={"web": 0.0})
    with pytest.raises(ConfigError, match="do not exist: web"):
        make_pipeline(DataConfig(datasets=sources, phases=[unclear]), seq_len=7, batch_size=4)


def test_text_of_the_hub_is_read_from_settings_and_refused_with_the_way_out(tmp_path):
    path = tmp_path / "a.toml"
    path.write_text(
        '[data]\nhf_dataset_split = "validation"\nhf_dataset_text_field = "body"\n'
        'hf_streaming = true\n[[data.datasets]]\nhf_name = "owner/text"\nhf_config = "en"\n'
    )
    config = load_data_config(path)
    assert (config.hf_dataset_split, config.hf_dataset_text_field) == ("validation", "body")
    assert config.datasets == [DatasetSource(hf_name="owner/text", hf_config="en")]
    for asked in (config, DataConfig(hf_dataset_name="owner/text")):
        with pytest.raises(ConfigError, match="tokenreel build hf:owner/text --out DIR"):
            make_pipeline(asked, seq_len=7, batch_size=4)


def test_a_phase_of_a_dataset_that_does_not_exist_is_told_at_once(folder):
    sources = [DatasetSource(path=str(folder / name)) for name in ("web", "books")]
    config = DataConfig(
        datasets=sources, phases=[TrainingPhase(start_step=9, dataset_weights={"bokks": 1})]
    )
    with pytest.raises(ConfigError, match=r"do not exist: bokks .* did you mean 'books'\?"):
        make_pipeline(config, seq_len=7, batch_size=4)


def test_phases_without_a_mixture_and_nothing_to_read_are_refused(folder):
    phases = [TrainingPhase(start_step=9)]
    with pytest.raises(ConfigError, match="phases change the weights of a mixture"):
        make_pipeline(
            DataConfig(dataset_path=str(folder / "web"), phases=phases), seq_len=7, batch_size=4
        )
    with pytest.raises(ConfigError, match="there is nothing to read"):
        make_pipeline(DataConfig(), seq_len=7, batch_size=4)


def test_the_end_of_documents_is_that_of_the_tokenizer(folder):
    settings = {"dataset_path": str(folder / "web"), "pack_sequences": True}
    with pytest.raises(ConfigError, match="tokenizer_path or eos_token_id in the settings"):
        make_pipeline(DataConfig(**settings), seq_len=7, batch_size=4)
    pipeline = make_pipeline(DataConfig(**settings, tokenizer_path="byte"), seq_len=7, batch_size=4)
    assert pipeline.dataset.eos_token_id == 256  # <|endoftext|> of the byte tokenizer
    assert "doc_ids" in next(iter(pipeline.loader))


def test_the_recipe_mixes_alike(config):
    recipe = make_recipe(config, seq_len=7, batch_size=8, seed=5)
    feed = Feed(recipe)
    assert [source.rows for source in recipe.sources] == ["document_windows"] * 2
    assert [phase.start_step for phase in recipe.phases] == [3, 5]
    counts = feed.order.counts(3 * 8)
    assert counts[0] == pytest.approx(18, abs=2)
    assert feed.order.counts(80)[1] - feed.order.counts(40)[1] == 40
    assert feed.batch(6).input_ids.min() > 1000


def test_a_recipe_reads_whole_folders(folder):
    config = DataConfig(dataset_path=str(folder / "web"), file_pattern="a*.npy")
    with pytest.raises(ConfigError, match="a recipe reads all files of a folder"):
        make_recipe(config, seq_len=7, batch_size=4)
