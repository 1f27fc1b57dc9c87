#include "data/input_stream.h"

#include <fcntl.h>
#include <unistd.h>
#include <xxhash.h>
#include <zlib.h>
#include <zstd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "data/source.h"

namespace trireme {
namespace {

constexpr size_t kBlockBytes = 1 << 17;  // what ZSTD_DStreamInSize() recommends, rounded

// The file itself, hashed as it goes by.
class RawFile {
 public:
  explicit RawFile(const fs::path& path) : path_(path) {
    // O_NONBLOCK: a pipe under this name must not make us wait for a writer.
    fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd_ < 0) throw failure("open");
    XXH3_128bits_reset(hash_.get());
  }
  ~RawFile() { ::close(fd_); }
  RawFile(const RawFile&) = delete;
  RawFile& operator=(const RawFile&) = delete;

  size_t read(char* to, size_t bytes) {
    for (;;) {
      const ssize_t n = ::read(fd_, to, bytes);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) throw failure("read");
      XXH3_128bits_update(hash_.get(), to, static_cast<size_t>(n));
      bytes_ += static_cast<uint64_t>(n);
      return static_cast<size_t>(n);
    }
  }

  const fs::path& path() const { return path_; }
  uint64_t bytes() const { return bytes_; }
  std::string hash() const {
    const XXH128_hash_t hash = XXH3_128bits_digest(hash_.get());
    char text[33];
    std::snprintf(text, sizeof text, "%016llx%016llx", static_cast<unsigned long long>(hash.high64),
                  static_cast<unsigned long long>(hash.low64));
    return text;
  }

 private:
  InputError failure(const char* operation) const {
    return InputError(
        concat("data: cannot ", operation, " ", path_.string(), ": ", std::strerror(errno)));
  }

  fs::path path_;
  int fd_;
  uint64_t bytes_ = 0;
  std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)> hash_{XXH3_createState(),
                                                                        XXH3_freeState};
};

}  // namespace

struct InputStream::State {
  explicit State(const fs::path& path)
      : file(path), compression(compression_of(path.native())), block(kBlockBytes) {
    if (compression == Compression::gzip) {
      // 15: the largest window; + 16: a gzip header is required.
      TRIREME_ASSERT(inflateInit2(&gzip, 15 + 16) == Z_OK);
    } else if (compression == Compression::zstd) {
      zstd = ZSTD_createDStream();
      TRIREME_ASSERT(zstd != nullptr);
    }
  }
  ~State() {
    if (compression == Compression::gzip) inflateEnd(&gzip);
    ZSTD_freeDStream(zstd);
  }
  State(const State&) = delete;

  // More input; false at the end of the file.
  bool refill() {
    at = 0;
    filled = file.read(block.data(), block.size());
    return filled > 0;
  }

  [[noreturn]] void corrupt(const char* kind, const char* reason) const {
    throw InputError(concat("data: cannot decompress ", file.path().string(), ": ", reason,
                            ", near byte ", file.bytes() - filled + at,
                            "\nnext: check the file with `", kind, " -t`"));
  }

  size_t read_gzip(char* to, size_t bytes) {
    gzip.next_out = reinterpret_cast<Bytef*>(to);
    gzip.avail_out = static_cast<uInt>(std::min<size_t>(bytes, 1 << 30));
    const uInt wanted = gzip.avail_out;
    while (gzip.avail_out == wanted) {
      if (at == filled && !refill()) {
        if (in_frame || file.bytes() == 0) corrupt("gzip", "it ends in the middle");
        return 0;
      }
      if (!in_frame && file.bytes() - filled + at > 0 && block[at] == 0) {  // padding behind
        ++at;
        continue;
      }
      if (!in_frame) inflateReset(&gzip);
      in_frame = true;
      gzip.next_in = reinterpret_cast<Bytef*>(block.data() + at);
      gzip.avail_in = static_cast<uInt>(filled - at);
      const int result = inflate(&gzip, Z_NO_FLUSH);
      at = filled - gzip.avail_in;
      if (result == Z_STREAM_END) in_frame = false;
      else if (result != Z_OK && result != Z_BUF_ERROR)
        corrupt("gzip", gzip.msg ? gzip.msg : "corrupt data");
    }
    return wanted - gzip.avail_out;
  }

  size_t read_zstd(char* to, size_t bytes) {
    ZSTD_outBuffer out{to, bytes, 0};
    while (out.pos == 0) {
      // A frame that has ended may still hold output back, hence the call without input.
      if (at == filled && !refill() && !in_frame) {
        if (file.bytes() == 0) corrupt("zstd", "it ends in the middle");
        return 0;
      }
      ZSTD_inBuffer in{block.data(), filled, at};
      const size_t result = ZSTD_decompressStream(zstd, &out, &in);
      if (ZSTD_isError(result)) corrupt("zstd", ZSTD_getErrorName(result));
      if (in.pos == at && out.pos == 0 && filled == 0) corrupt("zstd", "it ends in the middle");
      at = in.pos;
      in_frame = result != 0;
    }
    return out.pos;
  }

  RawFile file;
  Compression compression;
  std::vector<char> block;
  size_t at = 0, filled = 0;
  bool in_frame = false;
  z_stream gzip{};
  ZSTD_DStream* zstd = nullptr;
};

InputStream::InputStream(const fs::path& path) : state_(std::make_unique<State>(path)) {}
InputStream::~InputStream() = default;
InputStream::InputStream(InputStream&&) noexcept = default;
InputStream& InputStream::operator=(InputStream&&) noexcept = default;

size_t InputStream::read(char* to, size_t bytes) {
  if (bytes == 0) return 0;
  switch (state_->compression) {
    case Compression::gzip:
      return state_->read_gzip(to, bytes);
    case Compression::zstd:
      return state_->read_zstd(to, bytes);
    case Compression::none:
      break;
  }
  return state_->file.read(to, bytes);
}

uint64_t InputStream::raw_bytes() const { return state_->file.bytes(); }
std::string InputStream::raw_hash() const { return state_->file.hash(); }

FileHash hash_file(const fs::path& path) {
  RawFile file(path);
  std::vector<char> block(kBlockBytes);
  while (file.read(block.data(), block.size()) > 0) {
  }
  return {file.hash(), file.bytes()};
}

}  // namespace trireme
