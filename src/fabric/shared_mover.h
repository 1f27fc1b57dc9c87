// Sends and receives of one rank through a group's channels.
//
// A thread of its own moves whatever can be moved, so that starting never blocks and both ranks may
// send first. Messages of an ordered pair follow one another; a send is over when the receiver has
// taken its last byte.
//
// Threads: any. End: the destructor waits for what was begun, unless the group is dead.
#pragma once

#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include "fabric/communicator.h"
#include "fabric/shared_group.h"

namespace trireme {

class SharedMover {
 public:
  using Milliseconds = std::chrono::milliseconds;

  explicit SharedMover(SharedGroup& group);
  ~SharedMover();

  std::shared_ptr<Pending::State> begin(Operation operation, uint64_t sequence,
                                        Milliseconds timeout);

 private:
  struct Message;
  using Queue = std::deque<std::shared_ptr<Message>>;

  void serve();
  bool advance();  // true if anything moved
  bool push_bytes(Message& message, int to);
  bool pull_bytes(Message& message, int from);
  void look_for_trouble();
  void check_header(Message& message, int from);
  bool idle() const;

  SharedGroup& group_;
  std::mutex mutex_;  // guards all below; a message's fields are the thread's while it waits here
  std::condition_variable changed_;
  std::map<int, Queue> sends_, receives_;  // by peer
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace trireme
