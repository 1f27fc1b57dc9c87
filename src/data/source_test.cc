#include "data/source.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>

#include "base/error.h"
#include "data/test_corpus.h"

namespace trireme {
namespace {

using testing::TempDir;
using Names = std::vector<std::string>;

SourceOptions entry(const fs::path& path) {
  SourceOptions options;
  options.path = path.string();
  return options;
}

// Names below `dir`, in the order given.
Names names_of(const SourceListing& listing, const fs::path& dir) {
  Names names;
  for (const SourceFile& file : listing.files) {
    EXPECT_TRUE(file.name.starts_with(dir.string() + "/")) << file.name;
    names.push_back(file.name.substr(dir.string().size() + 1));
  }
  return names;
}

Names list(const TempDir& dir, const std::string& path) {
  const std::vector<SourceOptions> entries = {entry(dir.path / path)};
  return names_of(list_sources(entries)[0], dir.path);
}

void make_tree(const TempDir& dir) {
  for (const char* name : {"t/b.py", "t/a.py", "t/a-.py", "t/a/z.txt", "t/a/y.TXT", "t/B/x.md",
                           "t/c.jsonl.gz", "t/d.py.zst", "t/no.png", "t/none", "t/.hidden.py",
                           "t/.git/config.txt", "t/a/deep/er/w.rs", "t/e.gz"})
    dir.file(name, concat("text of ", name));
}

// The order of the bytes of the whole path below: '-' before '.' before '/', capitals first.
TEST(Source, AFolderIsWalkedInTheOrderOfBytes) {
  const TempDir dir;
  make_tree(dir);
  const Names expected = {"t/B/x.md",  "t/a-.py", "t/a.py",       "t/a/deep/er/w.rs", "t/a/y.TXT",
                          "t/a/z.txt", "t/b.py",  "t/c.jsonl.gz", "t/d.py.zst"};
  EXPECT_EQ(list(dir, "t"), expected);
  const std::vector<SourceOptions> entries = {entry(dir.path / "t")};
  const SourceListing listing = list_sources(entries)[0];
  EXPECT_EQ(listing.other_kinds, 3u);  // .png, no ending, .gz alone
  EXPECT_FALSE(listing.files[0].named);
  EXPECT_EQ(listing.files[0].bytes, std::string("text of t/B/x.md").size());
  EXPECT_EQ(listing.licence, "");
}

TEST(Source, ANamedFileIsTakenWhateverItsName) {
  const TempDir dir;
  make_tree(dir);
  EXPECT_EQ(list(dir, "t/no.png"), Names{"t/no.png"});
  EXPECT_EQ(list(dir, "t/.hidden.py"), Names{"t/.hidden.py"});
  const std::vector<SourceOptions> entries = {entry(dir.path / "t/none")};
  EXPECT_TRUE(list_sources(entries)[0].files[0].named);
}

TEST(Source, GlobsMatchAsAShellDoes) {
  const TempDir dir;
  make_tree(dir);
  EXPECT_EQ(list(dir, "t/*.py"), (Names{"t/a-.py", "t/a.py", "t/b.py"}));
  EXPECT_EQ(list(dir, "t/[bc]*"), (Names{"t/b.py", "t/c.jsonl.gz"}));
  EXPECT_EQ(list(dir, "t/?.py"), (Names{"t/a.py", "t/b.py"}));
  EXPECT_EQ(list(dir, "t/**/*.txt"), (Names{"t/a/z.txt"}));
  EXPECT_EQ(list(dir, "t/**/*.rs"), (Names{"t/a/deep/er/w.rs"}));
  EXPECT_EQ(list(dir, "t/**/*.py"), (Names{"t/a-.py", "t/a.py", "t/b.py"}));
  EXPECT_EQ(list(dir, "t/*.png"), (Names{"t/no.png"}));  // as it was asked for
  EXPECT_EQ(list(dir, "t/[aB]"), (Names{"t/B/x.md", "t/a/deep/er/w.rs", "t/a/y.TXT", "t/a/z.txt"}));
  EXPECT_THROW(list(dir, "t/*.cobol"), InputError);
  dir.file("t/[x].py", "a name that looks like a glob");
  EXPECT_EQ(list(dir, "t/[x].py"), Names{"t/[x].py"});
}

TEST(Source, AFileBelongsToTheFirstEntryThatBringsIt) {
  const TempDir dir;
  make_tree(dir);
  const std::vector<SourceOptions> entries = {entry(dir.path / "t/b.py"),
                                              entry(dir.path / "t/*.py"), entry(dir.path / "t")};
  const auto listings = list_sources(entries);
  EXPECT_EQ(names_of(listings[0], dir.path), Names{"t/b.py"});
  EXPECT_EQ(names_of(listings[1], dir.path), (Names{"t/a-.py", "t/a.py"}));
  EXPECT_EQ(listings[1].twice, 1u);
  EXPECT_EQ(listings[2].files.size(), 6u);
  EXPECT_EQ(listings[2].twice, 3u);
  const std::vector<SourceOptions> same = {entry(dir.path / "t/b.py"),
                                           entry(dir.path / "t/../t/b.py")};
  EXPECT_THROW(list_sources(same), InputError);  // nothing is left for the second
}

TEST(Source, LinksAndSpecialFilesDoNoHarm) {
  const TempDir dir;
  dir.file("t/a.py", "text");
  dir.file("elsewhere.txt", "text");
  dir.file("folder/b.py", "text");
  fs::create_directory_symlink("../folder", dir.path / "t/folder");
  fs::create_directory_symlink("..", dir.path / "t/loop");
  fs::create_symlink("nowhere.txt", dir.path / "t/broken.txt");
  fs::create_symlink("../elsewhere.txt", dir.path / "t/link.txt");
  ASSERT_EQ(::mkfifo((dir.path / "t/pipe.txt").c_str(), 0600), 0);
  EXPECT_EQ(list(dir, "t"), (Names{"t/a.py", "t/link.txt"}));
  EXPECT_THROW(list(dir, "t/pipe.txt"), InputError);  // and does not wait for a writer
  EXPECT_THROW(list(dir, "t/broken.txt"), InputError);
}

TEST(Source, RefusesWhatHoldsNoText) {
  const TempDir dir;
  make_directories(dir.path / "empty");
  EXPECT_THROW(list(dir, "empty"), InputError);
  EXPECT_THROW(list(dir, "missing.txt"), InputError);
  EXPECT_THROW(list_sources({}), InputError);
  const std::vector<SourceOptions> nothing(1);
  EXPECT_THROW(list_sources(nothing), InputError);
}

TEST(Source, ThePythonLibraryComesWithoutItsTests) {
  const std::vector<SourceOptions> entries = {entry("python-stdlib")};
  const SourceListing listing = list_sources(entries)[0];
  EXPECT_EQ(listing.licence, "PSF-2.0");
  std::vector<std::string> names;
  for (const SourceFile& file : listing.files) names.push_back(file.name);
  EXPECT_TRUE(std::ranges::is_sorted(names));
  for (const char* name : {"python-stdlib/json/decoder.py", "python-stdlib/os.py"})
    EXPECT_EQ(std::ranges::count(names, name), 1) << name;
}

// Some distributions leave the tests out themselves, so this needs a library of its own.
TEST(Source, ThePythonLibraryIsTakenWithoutTestsAndForeignPackages) {
  const TempDir dir;
  for (const char* name :
       {"os.py", "json/decoder.py", "json/notes.txt", "test/regrtest.py", "unittest/test/a.py",
        "unittest/case.py", "json/tests/a.py", "idlelib/idle_test/a.py", "idlelib/run.py",
        "lib2to3/tests/a.py", "site-packages/x/a.py", "dist-packages/a.py", "json/__pycache__/a.py",
        "testing.py"})
    dir.file(name, name);
  Names names;
  for (const SourceFile& file : list_python_library(dir.path).files) names.push_back(file.name);
  EXPECT_EQ(names, (Names{"python-stdlib/idlelib/run.py", "python-stdlib/json/decoder.py",
                          "python-stdlib/os.py", "python-stdlib/testing.py",
                          "python-stdlib/unittest/case.py"}));
}

TEST(Source, EndingsTellKindAndCompression) {
  EXPECT_TRUE(is_text_name("a.py") && is_text_name("A.CC") && is_text_name("x.tar.md.gz"));
  EXPECT_FALSE(is_text_name("py") || is_text_name("a.gz") || is_text_name("b.txt/a") ||
               is_text_name("a.tar"));
  EXPECT_TRUE(is_jsonl_name("x/a.jsonl") && is_jsonl_name("a.JSONL.zst"));
  EXPECT_FALSE(is_jsonl_name("a.json") || is_jsonl_name("jsonl"));
  EXPECT_EQ(compression_of("a.GZ"), Compression::gzip);
  EXPECT_EQ(compression_of("a.zstd"), Compression::zstd);
  EXPECT_EQ(compression_of("a.gz.txt"), Compression::none);
}

}  // namespace
}  // namespace trireme
