"""Hugging Face directories small enough to be made in a test: random weights, moved off their initial values, and a
trained tokenizer."""

import copy
import functools
import pathlib

import torch
from tokenizers import Tokenizer
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast

import tokenizer_files


@functools.cache
def tokenizer_json():
    return tokenizer_files.byte_level(
        tokenizer_files.pre_tokenizers.ByteLevel(add_prefix_space=False), vocab=400,
        special=("<|endoftext|>", "<|im_start|>", "<|im_end|>")).to_str()


def fast_tokenizer(**options):
    tokenizer = Tokenizer.from_str(tokenizer_json())
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **{"eos_token": "<|endoftext|>", **options})


# What makes each family itself: windows that are shorter than a text, soft caps that bend, both kinds of layers.
FAMILIES = {
    "llama": {},
    "qwen2": {},
    "qwen3": {"head_dim": 16},
    "mistral": {"sliding_window": 8, "head_dim": 8},
    "gpt2": {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64},
    "gemma2": {"head_dim": 8, "num_hidden_layers": 4, "sliding_window": 8, "query_pre_attn_scalar": 12,
               "attn_logit_softcapping": 5.0, "final_logit_softcapping": 3.0},
    "gemma3_text": {"head_dim": 8, "num_hidden_layers": 7, "sliding_window": 8, "query_pre_attn_scalar": 12},
}


def make(family, seed=1, **options):
    """A model in fp32. A vocabulary of 416 leaves 16 ids behind the tokenizer's."""
    torch.manual_seed(seed)
    sizes = {} if family == "gpt2" else {
        "hidden_size": 32, "intermediate_size": 56, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "max_position_embeddings": 64}
    config = AutoConfig.for_model(family, **{
        "vocab_size": 416, "bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0, **sizes, **FAMILIES[family],
        **options})
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return model


def llama(**options):
    return make("llama", **options)


def save(folder, model, dtype=torch.float32, tokenizer=True, **options):
    folder = pathlib.Path(folder)
    copy.deepcopy(model).to(dtype).save_pretrained(folder, **options)
    if tokenizer:
        fast_tokenizer().save_pretrained(folder)
    return folder


def weights(folder):
    """All tensors of a Hugging Face directory or a checkpoint, by name."""
    from safetensors.torch import load_file
    found = {}
    for file in sorted(pathlib.Path(folder).glob("*.safetensors")):
        if "optimizer" not in file.name:
            found.update(load_file(file))
    return found
