// For tests: a directory of the test's own that is gone after it.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <string>

namespace trireme {

class TestDirectory {
 public:
  TestDirectory() {
    std::string name = testing::TempDir() + "trireme-XXXXXX";
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp " + name);
    path_ = name;
  }
  ~TestDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TestDirectory(const TestDirectory&) = delete;
  TestDirectory& operator=(const TestDirectory&) = delete;

  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

// Where a test leaves files for tests/test_report.py, which reads them with other people's
// libraries: below $TRIREME_EXAMPLES where that is set, else below the test's own directory.
inline std::filesystem::path example_directory(const TestDirectory& own, const std::string& name) {
  const char* shared = ::getenv("TRIREME_EXAMPLES");
  const std::filesystem::path path = (shared ? shared : own.path()) / std::filesystem::path(name);
  std::filesystem::create_directories(path);
  return path;
}

}  // namespace trireme
