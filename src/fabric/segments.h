// Which elements of a flat buffer each rank of a group holds.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

namespace trireme {

struct Segment {
  int64_t offset = 0, numel = 0;  // elements of the whole buffer
  bool operator==(const Segment&) const = default;
};

// For each rank its segments, in the order in which they lie one after the other in its shard.
// Segments of all ranks are disjoint; elements that nobody holds (padding) are neither gathered nor
// summed. A value that shares its (immutable) data: cheap to copy, so build it once and pass it to
// every call. Any thread.
class SegmentMap {
 public:
  SegmentMap() : SegmentMap(0, {}) {}
  // InputError if a segment leaves [0, whole_numel) or two overlap. Cost: n log n in the segments.
  SegmentMap(int64_t whole_numel, std::vector<std::vector<Segment>> by_rank);
  // Rank r holds counts[r] elements, after those of the ranks before it.
  static SegmentMap consecutive(const std::vector<int64_t>& counts);

  int ranks() const { return static_cast<int>(data_->by_rank.size()); }
  int64_t whole_numel() const { return data_->whole_numel; }
  int64_t held_numel() const { return data_->held_numel; }  // by all ranks together
  const std::vector<Segment>& of(int rank) const {
    return data_->by_rank.at(static_cast<size_t>(rank));
  }
  // Of the rank's shard.
  int64_t numel_of(int rank) const { return data_->numel.at(static_cast<size_t>(rank)); }

  // Of the contents, the same in every process; made once, with the map.
  uint64_t hash() const { return data_->hash; }
  bool operator==(const SegmentMap& other) const;  // the same object or equal contents

 private:
  struct Data {
    int64_t whole_numel = 0, held_numel = 0;
    std::vector<std::vector<Segment>> by_rank;
    std::vector<int64_t> numel;
    uint64_t hash = 0;
  };
  std::shared_ptr<const Data> data_;  // shared between copies, on whatever thread; never written
};

}  // namespace trireme
