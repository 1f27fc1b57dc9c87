#include "train/append_file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>

#include "base/error.h"
#include "base/files.h"
#include "train/test_directory.h"

namespace trireme {
namespace {

TEST(AppendFile, GoesOnAtTheEndOfWhatIsThere) {
  const TestDirectory dir;
  AppendFile(dir / "f").append("one\n");
  AppendFile file(dir / "f");
  file.append("two\n");
  file.append("");
  file.sync();
  EXPECT_EQ(read_file(dir / "f"), "one\ntwo\n");
}

// In a child, since the limit on the size of files belongs to the process. 100 bytes fit; the
// second piece crosses the limit, so the kernel takes a part of it first.
void fill_the_disk(const std::filesystem::path& path) {
  std::signal(SIGXFSZ, SIG_IGN);
  AppendFile file(path);
  file.append(std::string(60, 'a'));
  const rlimit limit{.rlim_cur = 100, .rlim_max = RLIM_INFINITY};
  ::setrlimit(RLIMIT_FSIZE, &limit);
  try {
    file.append(std::string(60, 'b'));
    std::exit(1);
  } catch (const RunError&) {
  }
  file.append("end");
  std::exit(0);
}

TEST(AppendFile, AFullDiskLeavesNoTornPiece) {
  const TestDirectory dir;
  EXPECT_EXIT(fill_the_disk(dir / "f"), testing::ExitedWithCode(0), "");
  EXPECT_EQ(read_file(dir / "f"), concat(std::string(60, 'a'), "end"));
}

TEST(AppendFile, APathBelowAFileIsAnError) {
  const TestDirectory dir;
  AppendFile(dir / "f").append("x");
  EXPECT_THROW(AppendFile(dir / "f" / "g"), RunError);
}

}  // namespace
}  // namespace trireme
