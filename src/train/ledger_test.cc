#include "train/ledger.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <stdexcept>

#include "base/error.h"
#include "base/files.h"
#include "base/random.h"
#include "train/test_directory.h"

namespace trireme {
namespace {

using namespace std::chrono_literals;
using std::chrono::nanoseconds;

// A clock that stands until it is told to move; the clock of the day begins on 2026-01-01.
struct FakeTime {
  nanoseconds now = 5'000s;

  Ledger::Options options(nanoseconds write_every = 0s, nanoseconds before = 0s) {
    return {
        .write_every = write_every,
        .before = before,
        .monotonic = [this] { return now; },
        .wall_clock =
            [this] {
              return std::chrono::system_clock::time_point(1'767'225'600s) +
                     std::chrono::duration_cast<std::chrono::system_clock::duration>(now - 5'000s);
            }};
  }
};

nanoseconds at(const BucketTimes& times, Bucket bucket) {
  return times[static_cast<size_t>(bucket)];
}

TEST(Ledger, EachInstantIsInOneBucketAndInnerTimeCountsOnce) {
  const TestDirectory dir;
  FakeTime time;
  Ledger ledger(dir / "ledger.json", 0, time.options(0s, 3s));
  time.now += 10s;
  ledger.started();
  {
    const auto compute = ledger.in(Bucket::compute);
    time.now += 4s;
    {
      const auto wait = ledger.in(Bucket::communication);
      time.now += 2s;
      const auto data = ledger.in(Bucket::data);
      time.now += 1s;
    }
    time.now += 8s;
  }
  time.now += 16s;
  const Attempt& attempt = ledger.record().attempts.at(0);
  EXPECT_EQ(at(attempt.buckets, Bucket::start), 13s);
  EXPECT_EQ(at(attempt.buckets, Bucket::compute), 12s);
  EXPECT_EQ(at(attempt.buckets, Bucket::communication), 2s);
  EXPECT_EQ(at(attempt.buckets, Bucket::data), 1s);
  EXPECT_EQ(at(attempt.buckets, Bucket::other), 16s);
  EXPECT_EQ(attempt.wall(), 44s);
}

TEST(Ledger, AScopeEndsWithAnException) {
  const TestDirectory dir;
  FakeTime time;
  Ledger ledger(dir / "ledger.json", 0, time.options());
  try {
    const auto outer = ledger.in(Bucket::compute);
    const auto inner = ledger.in(Bucket::update);
    time.now += 1s;
    throw std::runtime_error("a step fails");
  } catch (const std::runtime_error&) {
  }
  time.now += 2s;
  EXPECT_EQ(at(ledger.record().totals(), Bucket::update), 1s);
  EXPECT_EQ(at(ledger.record().totals(), Bucket::start), 2s);
}

TEST(Ledger, MovesNoMoreThanThereIs) {
  const TestDirectory dir;
  FakeTime time;
  Ledger ledger(dir / "ledger.json", 0, time.options());
  {
    const auto compute = ledger.in(Bucket::compute);
    time.now += 10s;
    EXPECT_EQ(ledger.move(Bucket::compute, Bucket::communication, 4s), 4s);
  }
  EXPECT_EQ(ledger.move(Bucket::compute, Bucket::communication, 7s), 6s);
  EXPECT_EQ(ledger.move(Bucket::communication, Bucket::data, -1s), 0s);
  EXPECT_EQ(at(ledger.record().totals(), Bucket::communication), 10s);
  EXPECT_EQ(ledger.record().wall(), 10s);
}

// Random scopes and odd nanoseconds; the oracle is the difference of two readings of the clock.
TEST(Ledger, BucketsAddUpToTheWallToTheNanosecond) {
  const uint64_t seed = 11;
  SCOPED_TRACE(seed);
  const RandomStream random(seed, "scopes");
  const TestDirectory dir;
  nanoseconds expected{0};
  for (int attempt = 0; attempt < 3; ++attempt) {
    FakeTime time;
    time.now = nanoseconds(static_cast<int64_t>(random.below(attempt, 1u << 30)));
    const nanoseconds begin = time.now;
    Ledger ledger(dir / "ledger.json", 0, time.options(1s));
    ledger.started();
    for (uint64_t i = 0; i < 500; ++i) {
      const uint64_t bits = random.bits(1000 * attempt + i);
      const auto scope = ledger.in(static_cast<Bucket>(bits % kBuckets));
      time.now += nanoseconds(static_cast<int64_t>(bits >> 36));
      if (bits & 1) {
        const auto inner = ledger.in(static_cast<Bucket>((bits >> 8) % kBuckets));
        time.now += nanoseconds(static_cast<int64_t>(bits >> 40));
      }
    }
    ledger.finish(Outcome::finished);
    expected += time.now - begin;
    time.now += 5s;  // after the end
    EXPECT_EQ(ledger.record().wall(), expected);
  }
  // As read back, and as a sum of the text's decimals.
  const LedgerRecord record = read_ledger(dir / "ledger.json");
  EXPECT_EQ(record.wall(), expected);
  const auto json = nlohmann::json::parse(read_file(dir / "ledger.json"));
  long double sum = 0;
  for (const auto& [name, seconds] : json.at("buckets").items()) sum += seconds.get<double>();
  EXPECT_EQ(std::llround(sum * 1e9L), expected.count());
  EXPECT_EQ(std::llround(json.at("wall_seconds").get<double>() * 1e9), expected.count());
}

TEST(Ledger, ItsFileIsWhatTheContractSays) {
  const TestDirectory dir;
  FakeTime time;
  Ledger ledger(dir / "ledger.json", 0, time.options());
  time.now += 1'500'000'001ns;
  ledger.started();
  {
    const auto compute = ledger.in(Bucket::compute);
    time.now += 2s;
  }
  ledger.step_done(1);
  ledger.finish(Outcome::failed, "the loss of step 2 is \"NaN\"");
  EXPECT_EQ(read_file(dir / "ledger.json"), R"({
  "version": 1,
  "wall_seconds": 3.500000001,
  "buckets": {"start": 1.500000001, "data": 0.000000000, "compute": 2.000000000, "communication": 0.000000000, "update": 0.000000000, "evaluation": 0.000000000, "sampling": 0.000000000, "checkpoint": 0.000000000, "other": 0.000000000},
  "repeated_steps": 0,
  "attempts": [
    {
      "number": 1,
      "started": "2026-01-01T00:00:00Z",
      "ended": "2026-01-01T00:00:03Z",
      "outcome": "failed",
      "message": "the loss of step 2 is \"NaN\"",
      "resumed_after_step": 0,
      "last_step": 1,
      "wall_seconds": 3.500000001,
      "buckets": {"start": 1.500000001, "data": 0.000000000, "compute": 2.000000000, "communication": 0.000000000, "update": 0.000000000, "evaluation": 0.000000000, "sampling": 0.000000000, "checkpoint": 0.000000000, "other": 0.000000000}
    }
  ]
}
)");
}

TEST(Ledger, AnyMessageIsKept) {
  const TestDirectory dir;
  FakeTime time;
  Ledger(dir / "ledger.json", 0, time.options())
      .finish(Outcome::failed, "a \\ \"b\"\n\x01\x1b \xff\xc3 \xc3\xa9");
  EXPECT_EQ(read_ledger(dir / "ledger.json").attempts.at(0).message,
            "a \\ \"b\"\n\x01\x1b \xef\xbf\xbd\xef\xbf\xbd \xc3\xa9");
}

TEST(Ledger, AnAttemptThatWasKilledIsUnknownAndItsRepeatedStepsCount) {
  const TestDirectory dir;
  FakeTime time;
  {
    Ledger ledger(dir / "ledger.json", 0, time.options(10s));
    ledger.started();
    for (int64_t step = 1; step <= 7; ++step) {
      const auto compute = ledger.in(Bucket::compute);
      time.now += 5s;
      ledger.step_done(step);
    }
    EXPECT_EQ(read_ledger(dir / "ledger.json").attempts.at(0).outcome, Outcome::running);
  }  // no finish(): as after kill -9
  {
    Ledger ledger(dir / "ledger.json", 4, time.options(10s));
    ledger.step_done(5);
    ledger.finish(Outcome::stopped, "SIGTERM");
  }
  Ledger ledger(dir / "ledger.json", 5, time.options(10s));
  ledger.step_done(8);
  ledger.finish(Outcome::finished);

  const LedgerRecord record = read_ledger(dir / "ledger.json");
  ASSERT_EQ(record.attempts.size(), 3u);
  EXPECT_EQ(record.attempts[0].outcome, Outcome::unknown);
  EXPECT_EQ(record.attempts[0].last_step, 6);  // the last write, at 30 s
  EXPECT_EQ(record.attempts[0].wall(), 30s);
  EXPECT_EQ(record.attempts[1].outcome, Outcome::stopped);
  EXPECT_EQ(record.attempts[1].message, "SIGTERM");
  EXPECT_EQ(record.attempts[2].outcome, Outcome::finished);
  EXPECT_EQ(record.repeated_steps(), 1 + 1);  // 5 by the second attempt, 6 by the third
}

TEST(Ledger, AFileThatIsNoLedgerIsSetAside) {
  const TestDirectory dir;
  const auto path = dir / "ledger.json";
  for (const std::string content :
       {"", "{", "[]", "{\"attempts\": [{}]}", "{\"attempts\": 3}",
        "{\"attempts\": [{\"started\": \"\", \"ended\": \"\", \"message\": \"\", \"outcome\": "
        "\"finished\", \"resumed_after_step\": 0, \"last_step\": 1, \"buckets\": {\"data\": "
        "-1}}]}"}) {
    write_file(path, content);
    EXPECT_THROW(read_ledger(path), RunError) << content;
    FakeTime time;
    Ledger ledger(path, 0, time.options());
    EXPECT_EQ(read_ledger(path).attempts.size(), 1u);
    EXPECT_EQ(read_file(dir / "ledger.json.unreadable"), content);
  }
  EXPECT_TRUE(read_ledger(dir / "none").attempts.empty());
}

// The run matters more than its account: only the last write has to succeed.
TEST(Ledger, AWriteThatFailsIsAWarningUntilTheEnd) {
  const TestDirectory dir;
  FakeTime time;
  fs::create_directory(dir / "run");
  Ledger ledger(dir / "run" / "ledger.json", 0, time.options());
  fs::remove_all(dir / "run");
  time.now += 1s;
  EXPECT_NO_THROW(ledger.step_done(1));
  EXPECT_THROW(ledger.finish(Outcome::finished), RunError);
}

}  // namespace
}  // namespace trireme
