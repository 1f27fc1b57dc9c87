// The memory that the ranks of one machine share: who is there, who has failed, and the groups'
// areas.
//
// A region is a memfd: it has no name, so nothing is left of it however its processes end. Whoever
// starts the ranks makes it and hands the descriptor down; each rank attaches by it. Ranks may as
// well be threads of one process that attach to the same descriptor.
//
// Life and death. A rank holds a file lock on the byte of its number, which the kernel drops when
// its process ends in any way; so a killed rank is missed within a tenth of a second by whoever
// waits for it, without a word from anybody. The first failure of the run is kept with its rank,
// text and exit code.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace trireme {

// A word in shared memory that ranks sleep on.
using SharedWord = std::atomic<uint32_t>;
// Sleeps until woken, until `word` is no longer `seen`, or for `milliseconds`.
void sleep_on(SharedWord& word, uint32_t seen, int milliseconds);
void wake_all(SharedWord& word);

class SharedRegion {
 public:
  static constexpr int kMaxRanks = 256;

  struct Failure {
    int rank = -1;
    int exit_code = 1;
    std::string text;
  };

  // Makes the memfd, which children inherit. RunError if the system refuses. `supervised`: somebody
  // waits for the ranks' processes and reports how they end, so a vanished one is left to him for a
  // moment. The caller closes it.
  static int make(int ranks, bool supervised);

  // Maps the control block. `rank` -1 watches only.
  SharedRegion(int fd, int rank);
  ~SharedRegion();
  SharedRegion(const SharedRegion&) = delete;
  SharedRegion& operator=(const SharedRegion&) = delete;

  int rank() const { return rank_; }
  int ranks() const;
  bool supervised() const;

  // --- Ends
  void leave();  // this rank has done all it had to do
  // True if this is the run's first failure; later ones are not kept.
  bool fail(const Failure& failure);
  std::optional<Failure> failure() const;
  // True for the first that asks: whoever tells the user what went wrong.
  bool first_to_tell();
  bool has_left(int rank) const;
  // Its process is gone, and not because it was done. A system call: not for hot loops.
  bool is_gone(int rank) const;

  // What this rank is about to do, for whoever tells why it ended: "step 12". Cut after 95 bytes.
  void set_activity(const std::string& text);
  // What it said last; "its start" before that. A rank may be saying something else meanwhile.
  std::string activity(int rank) const;

  // --- Groups
  // The area of a group, zeros at first; every member that asks with the same key and first member
  // maps the same one; `bytes` is the same on all. FabricError if ranks ask for groups in different
  // orders.
  class Area {
   public:
    Area(std::byte* data, size_t bytes) : data_(data), bytes_(bytes) {}
    Area(Area&& other) noexcept;
    Area& operator=(Area&&) = delete;
    ~Area();
    std::byte* data() const { return data_; }

   private:
    std::byte* data_;
    size_t bytes_;
  };
  Area map_group(const std::string& name, const std::string& key, const std::vector<int>& members,
                 uint64_t build, size_t bytes);

 private:
  struct Control;

  int fd_;
  int rank_;
  Control* control_ = nullptr;
};

}  // namespace trireme
