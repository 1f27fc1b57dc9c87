#include "fabric/segments.h"

#include <algorithm>

#include "base/error.h"

namespace trireme {
namespace {

// splitmix64's finalizer over the sum: every bit of both moves half of the result's.
uint64_t mix(uint64_t hash, uint64_t value) {
  uint64_t x = hash * 0x9e3779b97f4a7c15 + value + 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

}  // namespace

SegmentMap::SegmentMap(int64_t whole_numel, std::vector<std::vector<Segment>> by_rank) {
  auto data = std::make_shared<Data>();
  data->whole_numel = whole_numel;
  std::vector<Segment> all;
  uint64_t hash = mix(0, static_cast<uint64_t>(whole_numel));
  for (size_t rank = 0; rank < by_rank.size(); ++rank) {
    int64_t numel = 0;
    for (const Segment& segment : by_rank[rank]) {
      TRIREME_CHECK(segment.numel >= 0 && segment.offset >= 0 &&
                        segment.offset <= whole_numel - segment.numel,
                    "segments of rank ", rank, ": ", segment.numel, " elements at ", segment.offset,
                    " leave a buffer of ", whole_numel);
      numel += segment.numel;
      hash = mix(mix(hash, static_cast<uint64_t>(segment.offset)),
                 static_cast<uint64_t>(segment.numel));
      if (segment.numel > 0) all.push_back(segment);
    }
    hash = mix(hash, ~uint64_t{0});  // the rank's end
    data->numel.push_back(numel);
    data->held_numel += numel;
  }
  std::ranges::sort(all, {}, &Segment::offset);
  for (size_t i = 1; i < all.size(); ++i)
    TRIREME_CHECK(all[i - 1].offset + all[i - 1].numel <= all[i].offset,
                  "segments of ranks overlap: ", all[i - 1].numel, " elements at ",
                  all[i - 1].offset, " and ", all[i].numel, " at ", all[i].offset);
  data->by_rank = std::move(by_rank);
  data->hash = hash;
  data_ = std::move(data);
}

SegmentMap SegmentMap::consecutive(const std::vector<int64_t>& counts) {
  std::vector<std::vector<Segment>> by_rank;
  int64_t offset = 0;
  for (int64_t count : counts) {
    TRIREME_CHECK(count >= 0, "a rank cannot hold ", count, " elements");
    by_rank.push_back({Segment{offset, count}});
    offset += count;
  }
  return SegmentMap(offset, std::move(by_rank));
}

bool SegmentMap::operator==(const SegmentMap& other) const {
  return data_ == other.data_ ||
         (data_->whole_numel == other.data_->whole_numel && data_->by_rank == other.data_->by_rank);
}

}  // namespace trireme
