// The keys of recipes: the table, and the checks that need more than one key.
#include <sched.h>

#include <algorithm>
#include <thread>

#include "base/error.h"
#include "base/recipe/recipe.h"
#include "base/recipe/schema.h"

namespace trireme {
namespace {

constexpr std::string_view kPretrain = "task=pretrain";
constexpr std::string_view kNewModel = "task=pretrain & !model.from";
constexpr std::string_view kCtr = "task=ctr";
// All decoders but GPT-2, whose positions are learned and whose heads all have keys of their own.
constexpr std::string_view kRotary =
    "task=pretrain & model.family=llama|qwen2|qwen3|mistral|gemma2|gemma3";
constexpr std::string_view kWindowed = "task=pretrain & model.family=mistral|gemma2|gemma3";

// Sizes of a model and lengths of a sequence: at most 2^24, so that no product of a few overflows.
constexpr std::string_view kSize = ">= 1, <= 16777216";

int64_t ranks_with_data(const Recipe& recipe) {
  return recipe.integer("layout.replica") * recipe.integer("layout.shard");
}

std::optional<Value> steps_of_tokens(const Recipe& recipe) {
  if (!recipe.has("run.tokens")) return std::nullopt;
  const auto divide_up = [](int64_t a, int64_t b) { return (a - 1) / b + 1; };
  return divide_up(divide_up(recipe.integer("run.tokens"), recipe.integer("batch.size")),
                   recipe.integer("data.sequence"));
}

std::optional<Value> usable_cores(const Recipe&) {
  cpu_set_t cores;
  if (::sched_getaffinity(0, sizeof cores, &cores) == 0) return CPU_COUNT(&cores);
  return std::max(1u, std::thread::hardware_concurrency());
}

std::optional<Value> hidden_per_head(const Recipe& recipe) {
  const int64_t hidden = recipe.integer("model.hidden"), heads = recipe.integer("model.heads");
  TRIREME_CHECK(hidden % heads == 0, recipe.where("model.heads"), ": model.hidden = ", hidden,
                " is no multiple of model.heads = ", heads,
                "\nchange one of them, or give model.head_dim");
  return hidden / heads;
}

constexpr KeySpec kKeys[] = {
    {.name = "task",
     .type = KeyType::choice,
     .help = "What is trained: a language model on text, or a click model on a log of clicks.",
     .initial = kRequired,
     .choices = "pretrain | ctr"},

    {.name = "run.name",
     .type = KeyType::text,
     .help =
         "Name of the run; its directory is runs/NAME, or the next free of runs/NAME-2 and so on.",
     .initial = kDerived,
     .derived_from = "the name of the recipe file, without its ending",
     .derive = [](const Recipe& r) -> std::optional<Value> { return r.path().stem().string(); }},
    {.name = "run.dir",
     .type = KeyType::text,
     .help = "The run directory itself; one that holds a run already needs --resume.",
     .initial = kDerived,
     .derived_from = "run.name, when the run starts"},
    {.name = "run.steps",
     .type = KeyType::integer,
     .help = "Optimizer steps of the whole run.",
     .initial = kDerived,
     .unit = "steps",
     .range = ">= 1",
     .derived_from = "run.tokens or run.epochs",
     .derive = steps_of_tokens},
    {.name = "run.tokens",
     .type = KeyType::count,
     .help = "Length of the run in tokens, rounded up to whole steps; instead of run.steps.",
     .initial = kOptional,
     .unit = "tokens",
     .range = ">= 1",
     .when = kPretrain},
    {.name = "run.epochs",
     .type = KeyType::number,
     .help = "Length of the run in passes over the training data; instead of run.steps.",
     .initial = kOptional,
     .unit = "epochs",
     .range = "> 0"},
    {.name = "run.seed",
     .type = KeyType::integer,
     .help = "Seed of initial values, data order and sampling.",
     .initial = "1",
     .range = ">= 0"},
    {.name = "run.threads",
     .type = KeyType::integer,
     .help = "Threads of this process, shared by its ranks; 0 takes all cores.",
     .initial = kDerived,
     .unit = "threads",
     .range = ">= 0, <= 4096",
     .derived_from = "the cores that this process may use",
     .derive = usable_cores,
     .zero_derives = true},

    {.name = "model.from",
     .type = KeyType::text,
     .help = "A model to go on with: a Hugging Face directory, a run or a checkpoint.",
     .initial = kOptional,
     .when = kPretrain},
    {.name = "model.family",
     .type = KeyType::choice,
     .help = "The architecture of a new model; or give model.from.",
     .initial = kOptional,
     .choices = "llama if task=pretrain | qwen2 if task=pretrain | qwen3 if task=pretrain | "
                "mistral if task=pretrain | gemma2 if task=pretrain | gemma3 if task=pretrain | "
                "gpt2 if task=pretrain | lr if task=ctr"},
    {.name = "model.layers",
     .type = KeyType::integer,
     .help = "Decoder blocks.",
     .initial = kRequired,
     .unit = "blocks",
     .range = ">= 1, <= 10000",
     .when = kNewModel},
    {.name = "model.hidden",
     .type = KeyType::integer,
     .help = "Width of the residual stream.",
     .initial = kRequired,
     .range = kSize,
     .when = kNewModel},
    {.name = "model.heads",
     .type = KeyType::integer,
     .help = "Query heads of a block.",
     .initial = kRequired,
     .range = kSize,
     .when = kNewModel},
    {.name = "model.kv_heads",
     .type = KeyType::integer,
     .help = "Key and value heads of a block; each serves heads / kv_heads query heads.",
     .initial = kDerived,
     .range = kSize,
     .when = kRotary,
     .derived_from = "model.heads",
     .derive = [](const Recipe& r) -> std::optional<Value> { return r.integer("model.heads"); }},
    {.name = "model.head_dim",
     .type = KeyType::integer,
     .help = "Width of a head; even, since positions rotate pairs.",
     .initial = kDerived,
     .range = kSize,
     .when = kRotary,
     .derived_from = "model.hidden / model.heads",
     .derive = hidden_per_head},
    {.name = "model.ffn",
     .type = KeyType::integer,
     .help = "Inner width of the feed-forward layer.",
     .initial = kRequired,
     .range = kSize,
     .when = kNewModel},
    {.name = "model.tie_embeddings",
     .type = KeyType::flag,
     .help = "The output layer is the transposed token embedding: one parameter, two uses.",
     .initial = kDerived,
     .when = kNewModel,
     .derived_from = "model.family: true for gpt2 and gemma, whose releases are tied",
     .derive = [](const Recipe& r) -> std::optional<Value> {
       const std::string& family = r.text("model.family");
       return family == "gpt2" || family == "gemma2" || family == "gemma3";
     }},
    {.name = "model.rope_theta",
     .type = KeyType::number,
     .help = "Base of the rotary position embedding's wavelengths.",
     .initial = "1e4",
     .range = "> 0",
     .when = kRotary},
    {.name = "model.window",
     .type = KeyType::integer,
     .help = "Tokens that a local layer sees, itself included. Without it gemma's local layers see "
             "4,096, and mistral has none.",
     .initial = kOptional,
     .unit = "tokens",
     .range = kSize,
     .when = kWindowed},
    {.name = "model.norm_eps",
     .type = KeyType::number,
     .help = "Added to the mean square below the root of each norm.",
     .initial = "1e-5",
     .range = "> 0",
     .when = kNewModel},
    {.name = "model.init_std",
     .type = KeyType::number,
     .help = "Standard deviation of the initial matrices.",
     .initial = "0.02",
     .range = "> 0",
     .when = kNewModel},
    {.name = "model.max_positions",
     .type = KeyType::integer,
     .help = "Longest sequence that the model states to take; data.sequence stays within it.",
     .initial = kDerived,
     .unit = "tokens",
     .range = kSize,
     .when = kNewModel,
     .derived_from = "data.sequence",
     .derive = [](const Recipe& r) -> std::optional<Value> { return r.integer("data.sequence"); }},

    {.name = "data.source",
     .type = KeyType::records,
     .help = "Where the data comes from: named sources, paths and globs.",
     .initial = kRequired},
    {.name = "data.source.path",
     .type = KeyType::text,
     .help = "A named source (python-stdlib, generated-clicks), a path or a glob.",
     .initial = kRequired},
    {.name = "data.source.weight",
     .type = KeyType::number,
     .help =
         "Share of the samples, in proportion to the other weights; all entries have one, or none.",
     .initial = kOptional,
     .range = "> 0",
     .when = kPretrain},
    {.name = "data.source.field",
     .type = KeyType::text,
     .help = "Field that holds the text in this source's .jsonl files, if not data.field.",
     .initial = kOptional,
     .when = kPretrain},
    {.name = "data.field",
     .type = KeyType::text,
     .help = "Field that holds the text in .jsonl files.",
     .initial = "\"text\"",
     .when = kPretrain},
    {.name = "data.tokenizer",
     .type = KeyType::text,
     .help = "A Hugging Face tokenizer.json; or give data.tokenizer.train and .vocab; by default "
             "that of model.from.",
     .initial = kOptional,
     .when = kPretrain},
    {.name = "data.tokenizer.train",
     .type = KeyType::choice,
     .help = "Train a tokenizer on the training documents first: byte-level BPE.",
     .initial = kOptional,
     .choices = "bpe",
     .when = kPretrain},
    {.name = "data.tokenizer.vocab",
     .type = KeyType::integer,
     .help = "Size of the trained vocabulary, special tokens included.",
     .initial = kRequired,
     .unit = "tokens",
     .range = ">= 257, <= 16777216",
     .when = "task=pretrain & data.tokenizer.train"},
    {.name = "data.bos",
     .type = KeyType::text,
     .help = "Token before each document and each piece that a sample cuts from one, as the "
             "tokenizer spells it; \"none\" puts none.",
     .initial = kDerived,
     .when = kPretrain,
     .derived_from = "the tokenizer: what it puts before a text"},
    {.name = "data.eos",
     .type = KeyType::text,
     .help = "Token after each document, as the tokenizer spells it.",
     .initial = kDerived,
     .when = kPretrain,
     .derived_from = "the tokenizer: what ends a text"},
    {.name = "data.sequence",
     .type = KeyType::integer,
     .help = "Length of a sample.",
     .initial = kRequired,
     .unit = "tokens",
     .range = ">= 2, <= 16777216",
     .when = kPretrain},
    {.name = "data.held_out",
     .type = KeyType::number,
     .help = "Share of the documents (or rows) that is never trained on, chosen by their hash.",
     .initial = "0.05",
     .range = ">= 0, < 1"},
    {.name = "data.document_attention",
     .type = KeyType::flag,
     .help = "Attention stays inside a document where a sample holds several.",
     .initial = "true",
     .when = kPretrain},
    {.name = "data.document_positions",
     .type = KeyType::flag,
     .help = "Positions start again at each document where a sample holds several.",
     .initial = "true",
     .when = kPretrain},
    {.name = "data.cache",
     .type = KeyType::text,
     .help = "Folder of prepared corpora; the same inputs are prepared once.",
     .initial = "\"data\"",
     .when = kPretrain},
    {.name = "data.rows",
     .type = KeyType::count,
     .help = "Rows of the generated click log.",
     .initial = kRequired,
     .unit = "rows",
     .range = ">= 1",
     .when = kCtr},
    {.name = "data.fields",
     .type = KeyType::integer,
     .help = "Id fields of a row.",
     .initial = kRequired,
     .unit = "fields",
     .range = ">= 1, <= 10000",
     .when = kCtr},
    {.name = "data.ids",
     .type = KeyType::count,
     .help = "Distinct ids of a field.",
     .initial = kRequired,
     .unit = "ids",
     .range = ">= 1",
     .when = kCtr},

    {.name = "table.optimizer.kind",
     .type = KeyType::choice,
     .help = "Optimizer of the row tables.",
     .initial = "\"row_adagrad\"",
     .choices = "row_adagrad | sgd",
     .when = kCtr},
    {.name = "table.optimizer.lr",
     .type = KeyType::number,
     .help = "Learning rate of the row tables; the schedule does not change it.",
     .initial = kRequired,
     .range = ">= 0",
     .when = kCtr},

    {.name = "batch.size",
     .type = KeyType::integer,
     .help = "Samples in one optimizer step, over all ranks.",
     .initial = kRequired,
     .unit = "samples",
     .range = ">= 1"},
    {.name = "batch.micro",
     .type = KeyType::integer,
     .help = "Samples that a rank holds at once; a step accumulates over its micro-batches.",
     .initial = kDerived,
     .unit = "samples",
     .range = ">= 1",
     .derived_from = "batch.size / (layout.replica × layout.shard)",
     .derive = [](const Recipe& r) -> std::optional<Value> {
       // Fewer samples than ranks are refused by check_batch().
       return std::max<int64_t>(1, r.integer("batch.size") / ranks_with_data(r));
     }},

    {.name = "optimizer.kind",
     .type = KeyType::choice,
     .help = "Optimizer of the dense parameters.",
     .initial = "\"adamw\"",
     .choices = "adamw"},
    {.name = "optimizer.lr",
     .type = KeyType::number,
     .help = "Learning rate at the schedule's peak.",
     .initial = kRequired,
     .range = ">= 0"},
    {.name = "optimizer.weight_decay",
     .type = KeyType::number,
     .help = "Decoupled decay of matrices; vectors and norms are not decayed.",
     .initial = "0.01",
     .range = ">= 0"},
    {.name = "optimizer.betas",
     .type = KeyType::numbers,
     .help = "Decay rates of the first and second moment.",
     .initial = "[0.9, 0.999]",
     .range = ">= 0, < 1",
     .length = 2},
    {.name = "optimizer.eps",
     .type = KeyType::number,
     .help = "Added to the root of the second moment.",
     .initial = "1e-8",
     .range = "> 0"},
    {.name = "optimizer.clip",
     .type = KeyType::number,
     .help = "Greatest norm of the whole gradient, which is scaled down to it; 0 is off.",
     .initial = "0.0",
     .range = ">= 0"},

    {.name = "schedule.kind",
     .type = KeyType::choice,
     .help = "Course of the learning rate after the warm-up; wsd holds, then decays.",
     .initial = "\"constant\"",
     .choices = "constant | linear | cosine | wsd"},
    {.name = "schedule.warmup_steps",
     .type = KeyType::integer,
     .help = "Steps of linear rise to the peak.",
     .initial = "0",
     .unit = "steps",
     .range = ">= 0"},
    {.name = "schedule.start_ratio",
     .type = KeyType::number,
     .help = "Learning rate that the warm-up rises from, as a share of the peak: above 0 where a "
             "model goes on.",
     .initial = "0.0",
     .range = ">= 0, <= 1",
     .when = "schedule.warmup_steps>0"},
    {.name = "schedule.min_ratio",
     .type = KeyType::number,
     .help = "Learning rate of the last step, as a share of the peak.",
     .initial = "0.0",
     .range = ">= 0, <= 1",
     .when = "schedule.kind=linear|cosine|wsd"},
    {.name = "schedule.decay_steps",
     .type = KeyType::integer,
     .help = "Steps at the end of the run in which the rate falls.",
     .initial = kRequired,
     .unit = "steps",
     .range = ">= 1",
     .when = "schedule.kind=wsd"},

    {.name = "precision.compute",
     .type = KeyType::choice,
     .help = "Element type of weights, activations and gradients; fp64 is for verification.",
     .initial = "\"fp32\"",
     .choices = "fp32 | fp64"},

    {.name = "layout.replica",
     .type = KeyType::integer,
     .help = "Ranks on the axis replica: each holds everything, and a part of the batch.",
     .initial = "1",
     .unit = "ranks",
     .range = ">= 1, <= 1000000"},
    {.name = "layout.shard",
     .type = KeyType::integer,
     .help = "Ranks on the axis shard: each holds a part of everything, and of the batch.",
     .initial = "1",
     .unit = "ranks",
     .range = ">= 1, <= 1000000"},
    {.name = "layout.zero",
     .type = KeyType::integer,
     .help =
         "Of what is cut over the axis shard, what a step makes whole: 3 a block's weights at a "
         "time, 2 all weights, 1 all weights and gradients.",
     .initial = "3",
     .range = ">= 1, <= 3"},
    {.name = "layout.recompute",
     .type = KeyType::choice,
     .help = "Activations that the backward pass computes again instead of keeping them.",
     .initial = "\"none\"",
     .choices = "none | selective | block",
     .when = kPretrain},

    {.name = "checkpoint.every_steps",
     .type = KeyType::integer,
     .help = "Steps between checkpoints; the last step always writes one. 0: only the last.",
     .initial = "0",
     .unit = "steps",
     .range = ">= 0"},
    {.name = "checkpoint.keep",
     .type = KeyType::integer,
     .help = "Checkpoints that stay on the disk, the newest first.",
     .initial = "3",
     .unit = "checkpoints",
     .range = ">= 1"},

    {.name = "eval.every_steps",
     .type = KeyType::integer,
     .help = "Steps between evaluations; the last step always has one. 0: only the last.",
     .initial = "0",
     .unit = "steps",
     .range = ">= 0"},
    {.name = "eval.at_start",
     .type = KeyType::flag,
     .help = "Evaluate before the first step, too.",
     .initial = kDerived,
     .derived_from = "model.from: what is there already is worth measuring",
     .derive = [](const Recipe& r) -> std::optional<Value> { return r.has("model.from"); }},
    {.name = "eval.max_samples",
     .type = KeyType::integer,
     .help = "Held-out samples that an evaluation reads, of each source in a blend; the same each "
             "time. 0: all.",
     .initial = "0",
     .unit = "samples",
     .range = ">= 0",
     .when = "data.held_out>0"},
    {.name = "eval.samples",
     .type = KeyType::integer,
     .help = "Texts that the model writes at each evaluation, for the report.",
     .initial = "3",
     .unit = "texts",
     .range = ">= 0, <= 1000",
     .when = kPretrain},
    {.name = "eval.sample_tokens",
     .type = KeyType::integer,
     .help = "Length of such a text.",
     .initial = "64",
     .unit = "tokens",
     .range = ">= 1, <= 16777216",
     .when = "task=pretrain & eval.samples>0"},
    {.name = "eval.prompts",
     .type = KeyType::texts,
     .help = "Beginnings of such texts, taken in turn; without any, they begin from nothing.",
     .initial = "[]",
     .when = "task=pretrain & eval.samples>0"},

    {.name = "kernel.reference",
     .type = KeyType::flag,
     .help = "Use each fused kernel's plain form, its oracle: slow, for verification.",
     .initial = "false",
     .when = kPretrain},
};

const KeyGroup kGroups[] = {
    {{"run.steps", "run.tokens", "run.epochs"}, true},
    {{"model.family", "model.from"}, true},
    {{"data.tokenizer", "data.tokenizer.train"}, true, kNewModel},
    {{"data.tokenizer", "data.tokenizer.train"}, false, kPretrain},
};

void check_heads(const Recipe& recipe) {
  if (!recipe.has("model.kv_heads")) return;
  const int64_t heads = recipe.integer("model.heads"), kv_heads = recipe.integer("model.kv_heads");
  TRIREME_CHECK(heads % kv_heads == 0, recipe.where("model.kv_heads"), ": model.heads = ", heads,
                " is no multiple of model.kv_heads = ", kv_heads);
  const int64_t head_dim = recipe.integer("model.head_dim");
  TRIREME_CHECK(head_dim % 2 == 0, recipe.where("model.head_dim"), ": model.head_dim = ", head_dim,
                " is odd; rotary positions need an even width of a head");
}

void check_positions(const Recipe& recipe) {
  if (!recipe.has("model.max_positions")) return;
  const int64_t positions = recipe.integer("model.max_positions");
  const int64_t sequence = recipe.integer("data.sequence");
  TRIREME_CHECK(sequence <= positions, recipe.where("data.sequence"),
                ": data.sequence = ", sequence, " exceeds model.max_positions = ", positions);
}

void check_weights(const Recipe& recipe) {
  const std::vector<Record> sources = recipe.records("data.source");
  const auto weighted = static_cast<size_t>(
      std::ranges::count_if(sources, [](const Record& source) { return source.has("weight"); }));
  TRIREME_CHECK(weighted == 0 || weighted == sources.size(), recipe.where("data.source"), ": ",
                weighted, " of ", sources.size(),
                " entries of data.source have a weight; give one to each (a blend) or to none");
}

void check_batch(const Recipe& recipe) {
  const int64_t size = recipe.integer("batch.size"), ranks = ranks_with_data(recipe);
  TRIREME_CHECK(size % ranks == 0, recipe.where("batch.size"), ": batch.size = ", size,
                " is no multiple of layout.replica × layout.shard = ", ranks);
  const int64_t micro = recipe.integer("batch.micro"), share = size / ranks;
  TRIREME_CHECK(share % micro == 0, recipe.where("batch.micro"), ": batch.micro = ", micro,
                " does not divide the ", share, " samples that each of ", ranks,
                ranks == 1 ? " rank" : " ranks", " has in a step");
}

void check_schedule(const Recipe& recipe) {
  if (!recipe.has("run.steps")) return;
  const int64_t steps = recipe.integer("run.steps");
  const int64_t warmup = recipe.integer("schedule.warmup_steps");
  TRIREME_CHECK(warmup <= steps, recipe.where("schedule.warmup_steps"),
                ": schedule.warmup_steps = ", warmup, " exceeds run.steps = ", steps);
  if (!recipe.has("schedule.decay_steps")) return;
  const int64_t decay = recipe.integer("schedule.decay_steps");
  TRIREME_CHECK(decay <= steps - warmup, recipe.where("schedule.decay_steps"),
                ": schedule.decay_steps = ", decay, " exceeds the ", steps - warmup,
                " steps that run.steps = ", steps, " leaves after the warm-up");
}

constexpr RecipeCheck kChecks[] = {check_heads, check_positions, check_weights, check_batch,
                                   check_schedule};

}  // namespace

const Schema& recipe_schema() {
  static const Schema schema{kKeys, kGroups, kChecks};
  return schema;
}

}  // namespace trireme
