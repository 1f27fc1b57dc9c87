#include "kernel/rope.h"

#include <cmath>

#include "base/error.h"
#include "kernel/test_support.h"

namespace trireme::kernel {
namespace {

TEST(Rope, FrequenciesArePowersOfTheta) {
  const auto f = rope_frequencies(8, 1e4);
  ASSERT_EQ(f.size(), 4u);
  EXPECT_NEAR(f[0], 1, 1e-15);
  EXPECT_NEAR(f[1], 0.1, 1e-15);
  EXPECT_NEAR(f[3], 0.001, 1e-17);
  EXPECT_THROW(rope_frequencies(7, 1e4), InternalError);
}

// At position 2^20 an angle computed in float would be off by hundredths.
TEST(Rope, TablesAreExactFarOut) {
  const int64_t far = 1 << 20;
  const RopeTables tables = rope_tables({0.1, 0.37}, far + 1, at::kFloat, 2);
  EXPECT_EQ(tables.cos.sizes(), (at::IntArrayRef{far + 1, 2}));
  EXPECT_NEAR(tables.cos[far][1].item<double>(), 2 * std::cos(far * 0.37), 2 * epsilon(at::kFloat));
  EXPECT_NEAR(tables.sin[3][0].item<double>(), 2 * std::sin(0.3), 2 * epsilon(at::kFloat));
  EXPECT_EQ(rope_tables({0.1}, 2, at::kDouble).sin.scalar_type(), at::kDouble);
}

}  // namespace
}  // namespace trireme::kernel
