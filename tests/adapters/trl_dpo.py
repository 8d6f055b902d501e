"""The DPO loss of TRL's own trainer, and that of our batches, on the same records and models.

A program of its own: TRL is heavy, and may live in another environment than the tests. Prints
JSON: for each way to give the records, the loss of TRL and ours, padded and packed.

    python trl_dpo.py FOLDER
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset  # type: ignore[import-untyped]
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import DPOConfig, DPOTrainer  # type: ignore[import-not-found]

import tokenreel
from tokenreel import Feed, Recipe, Source
from tokenreel.feed.fields import FIELDS, GROUP_FIELDS
from tokenreel.torch import Tensors, answer_logps, dpo_losses, sdpa_mask

SEQ_LEN = 512
BETA = 0.3
NAMES = ("chosen", "rejected")
WORDS = ["the", "sky", "is", "blue", "black", "why", "what", "größer", "42", "<b>", "of", "it"]
CONTROLS = ["<|bos|>", "<|head|>", "<|/head|>", "<|eot|>", "<|pad|>"]
TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}<|head|>{{ m.role }}<|/head|>{{ m.content | trim }}"
    "<|eot|>{% endfor %}{% if add_generation_prompt %}<|head|>assistant<|/head|>{% endif %}"
)
# Bare texts, as TRL joins them: nothing around the prompt, the end token behind the answer.
BARE = """
name = "bare"
end = [{ control = "<|eot|>" }]
[headers]
user = []
assistant = []
[ends]
user = []
"""


def write_tokenizer(folder: Path) -> PreTrainedTokenizerFast:
    model = Tokenizer(models.BPE())
    model.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    model.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=CONTROLS,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    model.train_from_iterator([" ".join(WORDS)] * 4, trainer)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=model,
        bos_token="<|bos|>",
        eos_token="<|eot|>",
        pad_token="<|pad|>",
        chat_template=TEMPLATE,
    )
    tokenizer.save_pretrained(folder)
    return tokenizer


def records_of(shape: str, count: int = 24) -> list[dict[str, Any]]:
    chance = random.Random(1)

    def said(role: str, most: int) -> dict[str, str]:
        content = " ".join(chance.choices(WORDS, k=chance.randrange(1, most)))
        return {"role": role, "content": content}

    records: list[dict[str, Any]] = []
    for _ in range(count):
        prompt = [said("user", 30)]
        if chance.random() < 0.4:
            prompt = [said("system", 8), *prompt, said("assistant", 9), said("user", 9)]
        chosen, rejected = [said("assistant", 25)], [said("assistant", 12)]
        while chosen == rejected:
            rejected = [said("assistant", 12)]
        if shape == "implicit":
            records.append({"chosen": prompt + chosen, "rejected": prompt + rejected})
        elif shape.startswith("plain"):
            asked, *texts = (item[-1]["content"] for item in (prompt, chosen, rejected))
            answers = {name: f" {text}" for name, text in zip(NAMES, texts, strict=True)}
            if shape == "plain, implicit":
                records.append({name: asked + text for name, text in answers.items()})
            else:
                records.append({"prompt": asked, **answers})
        else:
            records.append({"prompt": prompt, "chosen": chosen, "rejected": rejected})
    return records


def models_of(vocab_size: int) -> tuple[LlamaForCausalLM, LlamaForCausalLM]:
    made = []
    for seed in (0, 1):
        torch.manual_seed(seed)
        config = LlamaConfig(
            vocab_size=vocab_size,
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=2,
            max_position_embeddings=SEQ_LEN,
            initializer_range=0.3,
        )
        made.append(LlamaForCausalLM(config).eval())
    return made[0], made[1]


def trl_loss(
    folder: Path, tokenizer: Any, records: list[dict[str, Any]], **options: Any
) -> tuple[float, int]:
    """Return the mean loss of TRL over all pairs, and how many it kept."""
    model, frozen = models_of(len(tokenizer))
    config = DPOConfig(
        output_dir=str(folder),
        per_device_train_batch_size=4,
        beta=BETA,
        report_to=[],
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        disable_dropout=True,
        **{"max_length": None, **options},
    )
    trainer = DPOTrainer(
        model=model,
        ref_model=frozen,
        args=config,
        train_dataset=Dataset.from_list(records),
        processing_class=tokenizer,
    )
    total, count = 0.0, 0
    with torch.no_grad():
        for inputs in trainer.get_train_dataloader():
            pairs = len(inputs["input_ids"]) // 2
            total += float(trainer.compute_loss(model, inputs)) * pairs
            count += pairs
    return total / count, count


@torch.no_grad()
def our_losses(
    folder: Path, tokenizer: Any, template: Path, records: list[dict[str, Any]], **source: Any
) -> tuple[dict[str, float], int]:
    """Return the mean loss over all pairs of our batches, padded and packed, and their number."""
    model, frozen = models_of(len(tokenizer))
    tokenreel.build(
        records,
        out=folder / "store",
        tokenizer=folder / "tokenizer",
        template=str(template),
        pairs=True,
        progress=False,
    )
    rows = Source(name="p", path=folder / "store", rows="pairs", **source)
    feed = Feed(Recipe(seq_len=SEQ_LEN, global_batch_size=3, passes=1, sources=[rows]))
    tensors = Tensors((*FIELDS, *GROUP_FIELDS))
    found, count = {"packed": 0.0, "padded": 0.0}, 0
    for batch in feed:
        for way in found:
            shown = tensors(batch if way == "packed" else batch.padded())
            mask = sdpa_mask(shown["segment_ids"])
            if way == "padded":  # what any model of transformers takes
                mask = shown["attention_mask"].long()

            def logps(which: LlamaForCausalLM, shown: Any = shown, mask: Any = mask) -> Any:
                logits = which(
                    input_ids=shown["input_ids"],
                    attention_mask=mask,
                    position_ids=shown["position_ids"].long(),
                ).logits
                return answer_logps(logits, shown)

            losses = dpo_losses(logps(model), logps(frozen).sums, beta=BETA)
            found[way] += float(losses.sum())
        count += len(losses)
    return {way: total / count for way, total in found.items()}, count


CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "explicit": ("explicit", {}, {}),
    "implicit": ("implicit", {}, {}),
    "plain": ("plain", {}, {}),
    "plain, implicit": ("plain, implicit", {}, {}),
    "keep_start": (
        "explicit",
        {"max_length": 60, "truncation_mode": "keep_start"},
        {"answer_tokens": 60, "truncation": "keep_first"},
    ),
    "keep_end": (
        "explicit",
        {"max_length": 40, "truncation_mode": "keep_end"},
        {"answer_tokens": 40, "truncation": "keep_last"},
    ),
}


def main(folder: Path) -> None:
    told = {}
    for case, (shape, theirs, ours) in CASES.items():
        here = folder / case
        here.mkdir(parents=True)
        tokenizer = write_tokenizer(here / "tokenizer")
        records = records_of(shape)
        expected, kept = trl_loss(here / "trl", tokenizer, records, **theirs)
        template = here / "tokenizer"
        if shape.startswith("plain"):
            template = here / "bare.toml"
            template.write_text(BARE)
        found, count = our_losses(here, tokenizer, template, records, **ours)
        told[case] = {"trl": expected, "trl_pairs": kept, "pairs": count, **found}
    print(json.dumps(told))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
