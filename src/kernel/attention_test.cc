#include "kernel/attention.h"

#include <cmath>
#include <numeric>

#include "base/error.h"
#include "kernel/rope.h"
#include "kernel/test_support.h"

namespace trireme::kernel {
namespace {

// D 2 … 128: narrower than a vector, odd halves, padded panels, several panels.
constexpr int64_t kWidths[] = {2, 8, 32, 64, 80, 128};
// Queries are tiled by 6, panels hold 2 to 16 keys, backward blocks 48 queries.
constexpr int64_t kSequences[] = {1, 5, 6, 17, 47, 49, 130};

struct Case {
  AttentionShape shape;
  at::ScalarType dtype = at::kDouble;
  std::vector<int64_t> document_lengths;  // of every sequence; none: one document
  bool rotated = true;
};

struct Inputs {
  at::Tensor qkv, cos, sin, positions, documents;
};

// Positions restart at documents and run into the tables' upper half, so that a row's number taken
// for its position would show.
Inputs make_inputs(const Case& c) {
  const AttentionShape& s = c.shape;
  Inputs in;
  in.qkv = normal({s.batch * s.sequence, (s.heads + 2 * s.kv_heads) * s.head_dim}, "qkv", c.dtype);
  if (c.rotated) {
    const RopeTables tables =
        rope_tables(rope_frequencies(s.head_dim, 1e4), 2 * s.sequence, c.dtype);
    in.cos = tables.cos;
    in.sin = tables.sin;
  }
  std::vector<int32_t> positions, documents;
  for (int64_t b = 0; b < s.batch; ++b) {
    const auto lengths =
        c.document_lengths.empty() ? std::vector<int64_t>{s.sequence} : c.document_lengths;
    for (size_t k = 0; k < lengths.size(); ++k)
      for (int64_t i = 0; i < lengths[k]; ++i) {
        documents.push_back(static_cast<int32_t>(3 * k + b));
        positions.push_back(static_cast<int32_t>(i + b));
      }
  }
  in.positions = at::tensor(positions, at::kInt);
  if (!c.document_lengths.empty())
    in.documents = at::tensor(documents, at::kInt).view({s.batch, s.sequence});
  return in;
}

Differentiable attention_of(const Case& c, const Inputs& in, Mode mode) {
  return [=](const std::vector<at::Tensor>& qkv) {
    return attention(qkv[0], in.cos, in.sin, in.positions, in.documents, c.shape, mode);
  };
}

void expect_fused_equals_reference(const Case& c, double tolerance) {
  SCOPED_TRACE(testing::Message() << "batch " << c.shape.batch << " sequence " << c.shape.sequence
                                  << " heads " << c.shape.heads << "/" << c.shape.kv_heads
                                  << " width " << c.shape.head_dim);
  const Inputs in = make_inputs(c);
  const auto fused = run_with_gradients(attention_of(c, in, Mode::fused), {in.qkv});
  const auto plain = run_with_gradients(attention_of(c, in, Mode::reference), {in.qkv});
  EXPECT_TRUE(close(fused[0], plain[0], tolerance)) << "output";
  // Of a document of one row the exact gradient of q and k is zero: hence a floor.
  EXPECT_TRUE(close(fused[1], plain[1], tolerance, 1)) << "gradient";
}

// Sums have up to D + S = 260 terms of order one: some hundred roundings of 1e-16 at the very most.
TEST(Attention, FusedEqualsReferenceInDouble) {
  for_each_target([] {
    for (const int64_t head_dim : kWidths)
      for (const int64_t sequence : kSequences)
        for (const int64_t kv_heads : {1, 2, 4})
          expect_fused_equals_reference({{.batch = 2,
                                          .sequence = sequence,
                                          .heads = 4,
                                          .kv_heads = kv_heads,
                                          .head_dim = head_dim}},
                                        1e-12);
  });
}

// The same number of roundings, of 6e-8, which mostly cancel: 50 of them.
TEST(Attention, FusedEqualsReferenceInFloat) {
  for_each_target([] {
    for (const int64_t head_dim : kWidths)
      for (const int64_t sequence : {1, 6, 130, 257})
        expect_fused_equals_reference(
            {{.batch = 1, .sequence = sequence, .heads = 2, .kv_heads = 1, .head_dim = head_dim},
             at::kFloat},
            50 * epsilon(at::kFloat));
  });
}

TEST(Attention, StaysWithinDocuments) {
  for_each_target([] {
    for (const auto& lengths : std::vector<std::vector<int64_t>>{
             {1, 1, 1, 1}, {1, 99}, {99, 1}, {6, 48, 7, 1, 1, 37}, {50, 50}, {3}})
      expect_fused_equals_reference(
          {{.batch = 3,
            .sequence = std::accumulate(lengths.begin(), lengths.end(), int64_t{0}),
            .heads = 6,
            .kv_heads = 3,
            .head_dim = 16},
           at::kDouble,
           lengths},
          1e-12);
  });
}

// Packing must not change a document: k documents in a row are k rows.
TEST(Attention, PackedDocumentsEqualSeparateRows) {
  const Case packed{{.batch = 1, .sequence = 60, .heads = 4, .kv_heads = 2, .head_dim = 8},
                    at::kDouble,
                    {20, 20, 20}};
  Case separate = packed;
  separate.shape.batch = 3;
  separate.shape.sequence = 20;
  const Inputs in = make_inputs(packed);
  Inputs rows = in;
  rows.documents.reset();
  EXPECT_TRUE(at::equal(attention_of(packed, in, Mode::fused)({in.qkv}),
                        attention_of(separate, rows, Mode::fused)({in.qkv})));
}

TEST(Attention, WithoutRotationPartRotationAndOwnScale) {
  for (const Mode mode : {Mode::fused, Mode::reference}) {
    // By hand: two rows, one head of width 1, no rotation. Row 1 weighs its keys 3 and 5 by
    // softmax(2 * 7 * (3, 5)); with values 10, 20.
    const at::Tensor qkv = at::tensor({1.0, 3.0, 10.0, 7.0, 5.0, 20.0}, at::kDouble).view({2, 3});
    const AttentionShape shape{
        .batch = 1, .sequence = 2, .heads = 1, .kv_heads = 1, .head_dim = 1, .scale = 2};
    const at::Tensor out = attention(qkv, {}, {}, {}, {}, shape, mode);
    EXPECT_DOUBLE_EQ(out[0][0].item<double>(), 10);
    EXPECT_DOUBLE_EQ(out[1][0].item<double>(), 20 - 10 / (1 + std::exp(2.0 * 7 * 2)));
  }
  for_each_target([] {
    Case c{{.batch = 1, .sequence = 20, .heads = 2, .kv_heads = 1, .head_dim = 10, .scale = 0.2}};
    c.rotated = false;
    expect_fused_equals_reference(c, 1e-12);
    const Inputs part = [&] {
      Inputs in = make_inputs(c);
      const RopeTables tables = rope_tables(rope_frequencies(6, 1e4), 40, at::kDouble);
      in.cos = tables.cos;
      in.sin = tables.sin;
      return in;
    }();
    const auto fused = run_with_gradients(attention_of(c, part, Mode::fused), {part.qkv});
    const auto plain = run_with_gradients(attention_of(c, part, Mode::reference), {part.qkv});
    EXPECT_TRUE(close(fused[0], plain[0], 1e-12));
    EXPECT_TRUE(close(fused[1], plain[1], 1e-12));
  });
}

// Windows that end within a tile, a panel, a block, and beyond all keys; caps that bend strongly
// and hardly.
TEST(Attention, WindowsAndSoftCaps) {
  for_each_target([] {
    for (const int64_t window : {1, 2, 6, 16, 17, 50, 129, 1000})
      for (const double softcap : {0.0, 0.7, 30.0})
        for (const bool packed : {false, true}) {
          SCOPED_TRACE(testing::Message() << "window " << window << " softcap " << softcap);
          Case c{{.batch = 2,
                  .sequence = 130,
                  .heads = 2,
                  .kv_heads = 1,
                  .head_dim = 20,
                  .window = window,
                  .softcap = softcap}};
          if (packed) c.document_lengths = {1, 53, 76};
          expect_fused_equals_reference(c, 1e-12);
          c.dtype = at::kFloat;
          expect_fused_equals_reference(c, 50 * epsilon(at::kFloat));
        }
  });
}

// Backward works through blocks of 192 keys: documents that end before, at and behind a second and
// a third, and windows that begin within one. As many roundings as above, twice over.
TEST(Attention, DocumentsOfManyKeyBlocks) {
  for_each_target([] {
    for (const int64_t sequence : {192, 193, 385, 406})
      for (const int64_t window : {0, 50, 187, 193, 200}) {
        SCOPED_TRACE(testing::Message() << "window " << window);
        Case c{{.batch = 1, .sequence = sequence, .heads = 2, .kv_heads = 1, .head_dim = 8}};
        c.shape.window = window;
        expect_fused_equals_reference(c, 2e-12);
      }
  });
}

// Forward works through blocks of 1024 keys: documents that end at and behind one and two of them,
// and windows that some rows of a tile see begin in one block and the others in the next. Sums have
// up to 2060 terms.
TEST(Attention, DocumentsOfManyForwardBlocks) {
  for_each_target([] {
    for (const auto& [sequence, window] : {std::pair{1024, 0}, {1025, 0}, {2060, 0}, {1130, 100}}) {
      SCOPED_TRACE(testing::Message() << "window " << window);
      Case c{{.batch = 1, .sequence = sequence, .heads = 2, .kv_heads = 1, .head_dim = 8}};
      c.shape.window = window;
      expect_fused_equals_reference(c, 1e-11);
    }
    Case packed{{.batch = 1, .sequence = 1300, .heads = 2, .kv_heads = 2, .head_dim = 20}};
    packed.dtype = at::kFloat;
    packed.shape.softcap = 2;
    packed.document_lengths = {170, 1130};
    expect_fused_equals_reference(packed, 200 * epsilon(at::kFloat));
  });
}

TEST(Attention, AWindowIsWhatItSays) {
  // Equal keys: a row is the mean of the values that it sees.
  for (const Mode mode : {Mode::fused, Mode::reference}) {
    const AttentionShape shape{
        .batch = 1, .sequence = 7, .heads = 1, .kv_heads = 1, .head_dim = 1, .window = 3};
    const at::Tensor qkv = at::ones({7, 3}, at::kDouble);
    for (int64_t row = 0; row < 7; ++row) qkv[row][2] = static_cast<double>(row * row);
    const at::Tensor out = attention(qkv, {}, {}, {}, {}, shape, mode);
    EXPECT_NEAR(out[0][0].item<double>(), 0, 1e-15);
    EXPECT_NEAR(out[1][0].item<double>(), 0.5, 1e-15);
    EXPECT_NEAR(out[6][0].item<double>(), (16 + 25 + 36) / 3.0, 1e-13);
  }
}

TEST(Attention, ASoftCapIsTheFormula) {
  for (const Mode mode : {Mode::fused, Mode::reference}) {
    const AttentionShape shape{.batch = 1,
                               .sequence = 2,
                               .heads = 1,
                               .kv_heads = 1,
                               .head_dim = 1,
                               .scale = 2,
                               .softcap = 5};
    // Row 1 scores 2 * 3 * 1 and 2 * 3 * 2, and reads the values 0 and 1.
    const at::Tensor qkv = at::tensor({1.0, 1.0, 0.0, 3.0, 2.0, 1.0}, at::kDouble).view({2, 3});
    const at::Tensor out = attention(qkv, {}, {}, {}, {}, shape, mode);
    const double difference = 5 * std::tanh(6.0 / 5) - 5 * std::tanh(12.0 / 5);
    EXPECT_NEAR(out[1][0].item<double>(), 1 / (1 + std::exp(difference)), 1e-14);
  }
}

TEST(Attention, GradientsAreThoseOfDifferences) {
  Case c{
      {.batch = 2, .sequence = 9, .heads = 4, .kv_heads = 2, .head_dim = 4}, at::kDouble, {2, 7}};
  const Inputs in = make_inputs(c);
  for (const bool bent : {false, true}) {
    c.shape.window = bent ? 4 : 0;
    c.shape.softcap = bent ? 1.5 : 0;
    for (const Mode mode : {Mode::fused, Mode::reference})
      EXPECT_TRUE(gradients_are_right(attention_of(c, in, mode), {in.qkv}));
  }
}

// Scores in the thousands: exp of a raw score would overflow, and most weights are exactly zero.
TEST(Attention, LargeScoresDoNotOverflow) {
  for_each_target([] {
    Case c{{.batch = 1, .sequence = 33, .heads = 2, .kv_heads = 1, .head_dim = 16, .scale = 300},
           at::kFloat};
    const Inputs in = make_inputs(c);
    const at::Tensor out = attention_of(c, in, Mode::fused)({in.qkv});
    const at::Tensor exact =
        attention(in.qkv.to(at::kDouble), in.cos.to(at::kDouble), in.sin.to(at::kDouble),
                  in.positions, {}, c.shape, Mode::reference);
    // A score of 5,000 is known to 3e-4, which is the relative error of its weight.
    EXPECT_TRUE(close(out, exact, 3e-3));
  });
}

// A NaN in one key or value reaches every later row of its document, and no other document. (Rows
// shortly before it may get it too: they weigh that value by zero.)
TEST(Attention, ANanGoesWhereItIsSeen) {
  for_each_target([] {
    for (const int64_t part : {1, 2}) {  // a key, a value
      Case c{{.batch = 1, .sequence = 40, .heads = 1, .kv_heads = 1, .head_dim = 8},
             at::kFloat,
             {10, 20, 10}};
      const Inputs in = make_inputs(c);
      in.qkv[15][part * 8 + 3] = std::nan("");
      const at::Tensor nan = attention_of(c, in, Mode::fused)({in.qkv}).isnan().any(1);
      EXPECT_FALSE(nan.narrow(0, 0, 10).any().item<bool>());
      EXPECT_TRUE(nan.narrow(0, 15, 15).all().item<bool>());
      EXPECT_FALSE(nan.narrow(0, 30, 10).any().item<bool>());
    }
  });
}

TEST(Attention, TakesNoRowsAndExpandedGradients) {
  for (const Mode mode : {Mode::fused, Mode::reference}) {
    const AttentionShape shape{.batch = 0, .sequence = 5, .heads = 2, .kv_heads = 1, .head_dim = 4};
    EXPECT_EQ(attention(at::empty({0, 16}), {}, {}, {}, {}, shape, mode).sizes(),
              (at::IntArrayRef{0, 8}));
    const AttentionShape one{.batch = 1, .sequence = 5, .heads = 2, .kv_heads = 1, .head_dim = 4};
    const at::Tensor qkv = leaf(normal({5, 16}, "qkv", at::kDouble));
    attention(qkv, {}, {}, {}, {}, one, mode).sum().backward();
    EXPECT_TRUE(qkv.grad().isfinite().all().item<bool>());
  }
}

TEST(Attention, TwoCallsGiveTheSameBits) {
  const Case c{{.batch = 2, .sequence = 77, .heads = 4, .kv_heads = 2, .head_dim = 32}, at::kFloat};
  const Inputs in = make_inputs(c);
  const auto a = run_with_gradients(attention_of(c, in, Mode::fused), {in.qkv});
  const auto b = run_with_gradients(attention_of(c, in, Mode::fused), {in.qkv});
  EXPECT_TRUE(at::equal(a[0], b[0]));
  EXPECT_TRUE(at::equal(a[1], b[1]));
}

TEST(Attention, RefusesWhatItCannotRead) {
  const Case c{{.batch = 1, .sequence = 4, .heads = 2, .kv_heads = 1, .head_dim = 4}, at::kFloat};
  const Inputs in = make_inputs(c);
  const auto call = [&](const Inputs& with, AttentionShape shape) {
    attention(with.qkv, with.cos, with.sin, with.positions, with.documents, shape, Mode::fused);
  };
  Inputs bad = in;
  bad.qkv = normal({16, 4}, "qkv", at::kFloat).t();
  EXPECT_EQ(message_of<InternalError>([&] { call(bad, c.shape); }),
            "attention: qkv must be contiguous, got Float [4, 16] with strides [1, 4] on cpu");
  bad = in;
  bad.positions = at::tensor({0, 1, 2, 8}, at::kInt);
  EXPECT_EQ(message_of<InputError>([&] { call(bad, c.shape); }),
            "attention: position 8 of row 3 is outside the tables of 8 positions");
  bad = in;
  bad.documents = at::tensor({0, 1, 0, 0}, at::kInt).view({1, 4});
  EXPECT_EQ(message_of<InputError>([&] { call(bad, c.shape); }),
            "attention: document numbers must not decrease along a row, got 1 before 0 at place 2 "
            "of row 0");
  bad = in;
  bad.qkv = in.qkv.to(at::kHalf);
  EXPECT_THROW(call(bad, c.shape), InternalError);
  bad = in;
  bad.cos = in.cos.to(at::kDouble);
  EXPECT_THROW(call(bad, c.shape), InternalError);
  AttentionShape shape = c.shape;
  shape.heads = 3;
  shape.kv_heads = 2;
  EXPECT_THROW(call(in, shape), InternalError);
  shape = c.shape;
  shape.sequence = 5;
  EXPECT_THROW(call(in, shape), InternalError);
}

// Feeding a sequence in pieces through a cache gives what one call gives.
TEST(AttentionCached, PiecesEqualTheWhole) {
  for_each_target([] {
    for (const int64_t head_dim : {4, 32, 80})
      for (const Mode mode : {Mode::fused, Mode::reference}) {
        SCOPED_TRACE(testing::Message() << "width " << head_dim);
        Case c{{.batch = 2, .sequence = 70, .heads = 6, .kv_heads = 2, .head_dim = head_dim}};
        if (head_dim != 4) {  // what a window hides is neither read nor packed
          c.shape.window = 9;
          c.shape.softcap = 2;
        }
        const Inputs in = make_inputs(c);
        const at::Tensor whole =
            attention_of(c, in, Mode::reference)({in.qkv}).view({2, 70, 6 * head_dim});
        const KeyValueCache cache{at::full({2, 2, 80, head_dim}, std::nan(""), at::kDouble),
                                  at::full({2, 2, 80, head_dim}, std::nan(""), at::kDouble)};
        int64_t done = 0;
        for (const int64_t piece : {33, 1, 1, 5, 30}) {
          AttentionShape shape = c.shape;
          shape.sequence = piece;
          const auto rows = [&](const at::Tensor& x) {
            return x.view({2, 70, -1}).narrow(1, done, piece).reshape({2 * piece, -1}).contiguous();
          };
          const at::Tensor out =
              attention_cached(rows(in.qkv), in.cos, in.sin, rows(in.positions).view(-1),
                               at::full({2}, done, at::kLong), cache, shape, mode);
          EXPECT_TRUE(close(out.view({2, piece, -1}), whole.narrow(1, done, piece), 1e-12))
              << "piece of " << piece << " after " << done;
          done += piece;
        }
      }
  });
}

// As DocumentsOfManyForwardBlocks, through a cache.
TEST(AttentionCached, ManyForwardBlocksOfKeys) {
  for_each_target([] {
    for (const int64_t window : {0, 100}) {
      SCOPED_TRACE(testing::Message() << "window " << window);
      AttentionShape shape{
          .batch = 1, .sequence = 1, .heads = 3, .kv_heads = 1, .head_dim = 8, .window = window};
      for (const int64_t length : {1023, 1024, 1122, 2055}) {
        shape.sequence = length % 2 ? 1 : 7;
        std::vector<at::Tensor> out;
        for (const Mode mode : {Mode::fused, Mode::reference}) {
          const KeyValueCache cache{normal({1, 1, 2062, 8}, "keys", at::kDouble),
                                    normal({1, 1, 2062, 8}, "values", at::kDouble)};
          out.push_back(attention_cached(normal({shape.sequence, 40}, "qkv", at::kDouble), {}, {},
                                         {}, at::tensor({length}, at::kLong), cache, shape, mode));
        }
        EXPECT_TRUE(close(out[0], out[1], 1e-11)) << length;
      }
    }
  });
}

TEST(AttentionCached, SequencesMayHaveUnequalLengths) {
  for_each_target([] {
    const AttentionShape shape{
        .batch = 2, .sequence = 1, .heads = 4, .kv_heads = 2, .head_dim = 16};
    std::vector<at::Tensor> out;
    for (const Mode mode : {Mode::fused, Mode::reference}) {
      const KeyValueCache cache{normal({2, 2, 9, 16}, "keys", at::kFloat),
                                normal({2, 2, 9, 16}, "values", at::kFloat)};
      out.push_back(attention_cached(normal({2, 128}, "qkv", at::kFloat), {}, {}, {},
                                     at::tensor({8, 3}, at::kLong), cache, shape, mode));
      out.push_back(cache.keys);
      out.push_back(cache.values);
    }
    EXPECT_TRUE(close(out[0], out[3], 20 * epsilon(at::kFloat)));
    EXPECT_TRUE(at::equal(out[1], out[4]));
    EXPECT_TRUE(at::equal(out[2], out[5]));
  });
}

TEST(AttentionCached, RefusesAFullCacheAndGradients) {
  const AttentionShape shape{.batch = 1, .sequence = 2, .heads = 1, .kv_heads = 1, .head_dim = 2};
  const KeyValueCache cache{at::zeros({1, 1, 4, 2}), at::zeros({1, 1, 4, 2})};
  const auto call = [&](const at::Tensor& qkv, int64_t length) {
    attention_cached(qkv, {}, {}, {}, at::tensor({length}, at::kLong), cache, shape, Mode::fused);
  };
  EXPECT_EQ(message_of<InputError>([&] { call(at::zeros({2, 6}), 3); }),
            "attention_cached: 2 new tokens after 3 do not fit the cache of 4 places");
  EXPECT_THROW(call(leaf(at::zeros({2, 6})), 0), InternalError);
  call(at::zeros({2, 6}), 2);
}

}  // namespace
}  // namespace trireme::kernel
