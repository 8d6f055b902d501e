"""Contract 000's settings: the XML section, its defaults, and what is refused."""

from __future__ import annotations

import logging
from pathlib import Path
from types import SimpleNamespace

import pytest

from tokenreel.dropin import TrainingConfig, load_training_config
from tokenreel.dropin.episodes.training_config import settings_of
from tokenreel.errors import ConfigError

WHOLE = """<config>
  <model><n_layer>12</n_layer></model>
  <training>
    <dataset_mode>sft_episode</dataset_mode> <!-- token_stream | sft_episode -->
    <batch_sampling_mode>random</batch_sampling_mode>
    <epoch_shuffle>false</epoch_shuffle>
    <epoch_drop_last>false</epoch_drop_last>
    <epoch_seed>7</epoch_seed>
    <pad_token_id>50256</pad_token_id>
    <episode_min_tokens>3</episode_min_tokens>
  </training>
</config>
"""


def written(tmp_path: Path, text: str, name: str = "config.xml") -> Path:
    path = tmp_path / name
    path.write_text(text)
    return path


def test_all_keys_of_the_contract_are_read_and_other_sections_are_left_alone(tmp_path):
    settings = load_training_config(written(tmp_path, WHOLE))
    assert settings == TrainingConfig(
        dataset_mode="sft_episode",
        batch_sampling_mode="random",
        epoch_shuffle=False,
        epoch_drop_last=False,
        epoch_seed=7,
        pad_token_id=50256,
        episode_min_tokens=3,
    )


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("<training><device>cpu</device></training>", "a.xml"),
        ("<training/>", "a.xml"),
        ("<config><training/></config>", "a.xml"),
        ("<config><training> <!-- nothing yet -->\n</training></config>", "a.xml"),
        ("training:\n", "a.yaml"),
        ("[training]\n", "a.toml"),
    ],
)
def test_an_empty_section_has_the_defaults_of_the_contract(tmp_path, text, name):
    """ "If dataset_mode absent: default token_stream (current behavior)." """
    path = written(tmp_path, text, name)
    settings = load_training_config(path)
    assert load_training_config(path, overrides=["training.epoch_seed=3"]).epoch_seed == 3
    assert (settings.dataset_mode, settings.batch_sampling_mode) == ("token_stream", None)
    assert settings.epoch_shuffle is settings.epoch_drop_last is True
    assert settings.epoch_seed == 1337
    assert settings.pad_token_id is None
    assert settings.episode_min_tokens == 2


def test_the_same_settings_in_toml_and_yaml(tmp_path):
    toml = written(tmp_path, '[training]\ndataset_mode = "sft_episode"\nepoch_seed = 5\n', "a.toml")
    yaml = written(tmp_path, "training:\n  dataset_mode: sft_episode\n  epoch_seed: 5\n", "a.yaml")
    assert load_training_config(toml) == load_training_config(yaml)
    assert load_training_config(toml, overrides=["training.epoch_seed=9"]).epoch_seed == 9


def test_an_unknown_key_is_an_error_that_names_the_nearest(tmp_path):
    path = written(tmp_path, "<training><epoch_sed>1</epoch_sed></training>")
    with pytest.raises(ConfigError) as caught:
        load_training_config(path)
    assert str(caught.value) == f"{path}: unknown key 'epoch_sed'; did you mean 'epoch_seed'?"


KEYS_OF_A_TRAINER = """<training>
  <learning_rate>3e-4</learning_rate><max_iters>5</max_iters><seed>1</seed>
  <eval_batch_size>8</eval_batch_size><dataset_name>chats</dataset_name>
  <optimizer><name>adamw</name></optimizer><epoch_seed>2</epoch_seed>
</training>"""


def test_keys_of_other_parts_of_the_trainer_are_let_through_and_logged(tmp_path, caplog):
    """ "Add under <training> (adapt path to your schema): <training> ... " """
    caplog.set_level(logging.INFO, "tokenreel")
    path = written(tmp_path, KEYS_OF_A_TRAINER)
    assert load_training_config(path) == TrainingConfig(epoch_seed=2)
    assert caplog.messages == [
        f"{path}: keys left to the trainer: learning_rate, max_iters, seed, eval_batch_size, "
        "dataset_name, optimizer"
    ]


def test_keys_of_the_trainer_are_kept_where_they_are_named(tmp_path):
    path = written(tmp_path, KEYS_OF_A_TRAINER)
    as_text = load_training_config(path, also=["learning_rate", "warmup"])
    assert (as_text.learning_rate, as_text.warmup) == ("3e-4", None)
    typed = load_training_config(path, also={"learning_rate": float})
    assert (typed.learning_rate, typed.epoch_seed) == (3e-4, 2)
    with pytest.raises(ConfigError, match="unknown key 'learning_rat'"):
        load_training_config(
            written(tmp_path, "<training><learning_rat>1</learning_rat></training>"),
            also=["learning_rate"],
        )


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("dataset_mod", "dataset_mode"),
        ("Epoch_Shuffle", "epoch_shuffle"),
        ("epoch_droplast", "epoch_drop_last"),
        ("drop_last", "epoch_drop_last"),
        ("sampling_mode", "batch_sampling_mode"),
        ("pad_id", "pad_token_id"),
        ("min_tokens", "episode_min_tokens"),
        ("use_lossmask", "use_loss_mask"),
        ("batchsize", "batch_size"),
    ],
)
def test_a_near_miss_of_a_key_of_the_contract_stays_an_error(tmp_path, key, meant):
    """ "is controlled via new XML config flags": a flag that is misspelled controls nothing."""
    path = written(tmp_path, f"<training><max_iters>5</max_iters><{key}>1</{key}></training>")
    with pytest.raises(ConfigError, match=f"unknown key '{key}'; did you mean '{meant}'"):
        load_training_config(path)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("dataset_mode", "episodes"),
        ("batch_sampling_mode", "shuffle"),
        ("epoch_shuffle", "perhaps"),
        ("use_loss_mask", "assistant"),
        ("epoch_seed", "1.5"),
        ("pad_token_id", "-1"),
        ("episode_min_tokens", "0"),
        ("batch_size", "0"),
        ("block_size", "x"),
    ],
)
def test_a_value_that_makes_no_sense_is_refused_in_a_file_and_in_an_object(tmp_path, key, value):
    with pytest.raises(ConfigError, match=f"bad {key}"):
        load_training_config(written(tmp_path, f"<training><{key}>{value}</{key}></training>"))
    spoken = int(value) if value.lstrip("-").isdigit() else value
    given = {"batch_size": 1, "block_size": 1, key: spoken}
    with pytest.raises(ConfigError, match=f"bad {key}"):
        settings_of(SimpleNamespace(**given))


@pytest.mark.parametrize("missing", ["batch_size", "block_size"])
def test_a_config_without_a_size_is_refused(missing):
    sizes = {"batch_size": 2, "block_size": 8}
    del sizes[missing]
    with pytest.raises(ConfigError, match=f"the configuration has no {missing}"):
        settings_of(SimpleNamespace(**sizes))


def test_what_is_given_wins_over_the_config_and_none_is_not_given():
    thing = SimpleNamespace(batch_size=2, block_size=8, epoch_seed=4, epoch_shuffle=None)
    assert settings_of(thing, epoch_seed=None).epoch_seed == 4
    assert settings_of(thing, epoch_seed=0).epoch_seed == 0
    assert settings_of(thing, epoch_drop_last=False).epoch_drop_last is False
    assert settings_of(thing).epoch_shuffle is True
