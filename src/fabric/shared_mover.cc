#include "fabric/shared_mover.h"

#include <algorithm>
#include <cstring>
#include <future>

#include "fabric/dtype.h"

namespace trireme {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMaxMessages = 4096;  // to or from one peer; more means that nobody answers

// What goes ahead of a message's bytes.
struct MessageHeader {
  int64_t numel;
  DType dtype;
};
constexpr uint64_t kHeaderBytes = 64;
static_assert(sizeof(MessageHeader) <= kHeaderBytes);

void copy_in(SharedGroup::Channel& channel, uint64_t at, const std::byte* from, uint64_t bytes) {
  const uint64_t place = at % channel.kBytes, first = std::min(bytes, channel.kBytes - place);
  std::memcpy(channel.data + place, from, first);
  std::memcpy(channel.data, from + first, bytes - first);
}

void copy_out(const SharedGroup::Channel& channel, uint64_t at, std::byte* to, uint64_t bytes) {
  const uint64_t place = at % channel.kBytes, first = std::min(bytes, channel.kBytes - place);
  std::memcpy(to, channel.data + place, first);
  std::memcpy(to + first, channel.data, bytes - first);
}

}  // namespace

struct SharedMover::Message : Pending::State {
  void wait() override { result.get(); }
  bool done() const override {
    return result.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  }

  Operation operation;
  OpKind kind = OpKind::send;
  uint64_t sequence = 0;
  Milliseconds timeout{0};
  Clock::time_point deadline;
  uint64_t moved = 0;  // bytes, the header's among them
  uint64_t end = 0;    // of a send: the channel's head behind it, once all is written
  bool over = false;
  std::promise<void> promise;
  const std::shared_future<void> result = promise.get_future().share();

  uint64_t total() const { return kHeaderBytes + operation.input.nbytes(); }
  void finish(std::exception_ptr error = nullptr) {
    over = true;
    operation = {};
    if (error) promise.set_exception(error);
    else promise.set_value();
  }
};

SharedMover::SharedMover(SharedGroup& group) : group_(group) {
  thread_ = std::thread([this] { serve(); });
}

SharedMover::~SharedMover() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  group_.ring(group_.rank());
  thread_.join();
}

std::shared_ptr<Pending::State> SharedMover::begin(Operation operation, uint64_t sequence,
                                                   Milliseconds timeout) {
  auto message = std::make_shared<Message>();
  message->kind = operation.kind;
  message->sequence = sequence;
  message->timeout = timeout;
  message->deadline = Clock::now() + timeout;
  const int peer = operation.peer;
  message->operation = std::move(operation);
  if (group_.dead()) group_.throw_dead(message->kind, sequence);
  {
    const std::lock_guard lock(mutex_);
    Queue& queue = (message->kind == OpKind::send ? sends_ : receives_)[peer];
    if (queue.size() >= kMaxMessages) {
      group_.fail({std::string(name_of(message->kind)),
                   sequence,
                   {group_.global(peer)},
                   concat("rank ", group_.global(peer), " has left ", queue.size(),
                          " of them without an answer")});
      group_.throw_dead(message->kind, sequence);
    }
    queue.push_back(message);
  }
  changed_.notify_all();
  group_.ring(group_.rank());
  return message;
}

bool SharedMover::idle() const {
  const auto empty = [](const auto& pair) { return pair.second.empty(); };
  return std::ranges::all_of(sends_, empty) && std::ranges::all_of(receives_, empty);
}

void SharedMover::serve() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || !idle(); });
    if (idle()) return;
    const uint32_t seen = group_.bell(group_.rank());
    if (advance()) continue;
    look_for_trouble();
    if (idle()) continue;
    lock.unlock();
    sleep_on(group_.bell(group_.rank()), seen, SharedGroup::kSlice);
    lock.lock();
  }
}

bool SharedMover::advance() {
  bool moved = false;
  for (auto& [peer, queue] : sends_) {
    for (const auto& message : queue) {
      if (message->end == 0) moved |= push_bytes(*message, peer);
      if (message->end == 0) break;  // the channel is full
    }
    const uint64_t tail = group_.channel(group_.rank(), peer).tail.load(std::memory_order_acquire);
    while (!queue.empty() && queue.front()->end != 0 && queue.front()->end <= tail) {
      queue.front()->finish();
      queue.pop_front();
      moved = true;
    }
  }
  for (auto& [peer, queue] : receives_)
    while (!queue.empty()) {
      moved |= pull_bytes(*queue.front(), peer);
      if (!queue.front()->over) break;
      queue.pop_front();
    }
  return moved;
}

bool SharedMover::push_bytes(Message& message, int to) {
  SharedGroup::Channel& channel = group_.channel(group_.rank(), to);
  const uint64_t before = message.moved;
  uint64_t head = channel.head.load(std::memory_order_relaxed);
  uint64_t free = channel.kBytes - (head - channel.tail.load(std::memory_order_acquire));
  if (message.moved == 0) {
    if (free < kHeaderBytes) return false;
    const MessageHeader header{message.operation.input.numel(),
                               dtype_of(message.operation.input.scalar_type())};
    std::byte raw[kHeaderBytes] = {};
    std::memcpy(raw, &header, sizeof header);
    copy_in(channel, head, raw, kHeaderBytes);
    message.moved = kHeaderBytes;
    head += kHeaderBytes;
    free -= kHeaderBytes;
  }
  const uint64_t bytes = std::min(free, message.total() - message.moved);
  if (bytes > 0)
    copy_in(channel, head,
            static_cast<const std::byte*>(message.operation.input.const_data_ptr()) +
                (message.moved - kHeaderBytes),
            bytes);
  message.moved += bytes;
  channel.head.store(head + bytes, std::memory_order_release);
  if (message.moved == message.total()) message.end = head + bytes;
  if (message.moved == before) return false;
  group_.ring(to);
  return true;
}

bool SharedMover::pull_bytes(Message& message, int from) {
  SharedGroup::Channel& channel = group_.channel(from, group_.rank());
  const uint64_t before = message.moved;
  uint64_t tail = channel.tail.load(std::memory_order_relaxed);
  uint64_t there = channel.head.load(std::memory_order_acquire) - tail;
  if (message.moved == 0) {
    if (there < kHeaderBytes) return false;
    check_header(message, from);
    if (message.over) return true;
    message.moved = kHeaderBytes;
    tail += kHeaderBytes;
    there -= kHeaderBytes;
  }
  const uint64_t bytes = std::min(there, message.total() - message.moved);
  if (bytes > 0)
    copy_out(channel, tail,
             static_cast<std::byte*>(message.operation.output.mutable_data_ptr()) +
                 (message.moved - kHeaderBytes),
             bytes);
  message.moved += bytes;
  channel.tail.store(tail + bytes, std::memory_order_release);
  if (message.moved != before) group_.ring(from);
  if (message.moved == message.total()) message.finish();
  return message.moved != before || message.over;
}

void SharedMover::check_header(Message& message, int from) {
  MessageHeader header;
  std::byte raw[kHeaderBytes];
  const SharedGroup::Channel& channel = group_.channel(from, group_.rank());
  copy_out(channel, channel.tail.load(std::memory_order_relaxed), raw, kHeaderBytes);
  std::memcpy(&header, raw, sizeof header);
  const Signature mine = signature_of(message.operation);
  Signature theirs = mine;
  theirs.kind = OpKind::send;
  theirs.numel = header.numel;
  theirs.in = theirs.out = header.dtype;
  if (theirs.numel == mine.numel && theirs.in == mine.in) return;
  group_.fail({std::string(name_of(OpKind::recv)),
               message.sequence,
               {},
               concat("rank ", group_.global(from), " calls ", describe(theirs), ", rank ",
                      group_.global(group_.rank()), " calls ", describe(mine))});
  look_for_trouble();
}

// Fails what can no longer be done. Whether a peer has ended is asked before the channel is looked
// at once more.
void SharedMover::look_for_trouble() {
  for (auto* queues : {&sends_, &receives_})
    for (auto& [peer, queue] : *queues) {
      if (queue.empty() || group_.dead()) continue;
      Message& first = *queue.front();
      bool left = false;
      const bool lost = group_.is_lost(peer, left);
      if (lost && advance()) return;
      if (!lost && Clock::now() < first.deadline) continue;
      group_.fail({std::string(name_of(first.kind)),
                   first.sequence,
                   {group_.global(peer)},
                   lost ? ended_without_it({group_.global(peer)})
                        : did_not_answer(first.kind, group_.global(peer), first.timeout)});
    }
  if (!group_.dead()) return;
  for (auto* queues : {&sends_, &receives_})
    for (auto& [peer, queue] : *queues) {
      for (const auto& message : queue) {
        if (message->over) continue;
        try {
          group_.throw_dead(message->kind, message->sequence);
        } catch (...) {
          message->finish(std::current_exception());
        }
      }
    }
  // advance() drops the finished ones of `receives_`; nothing here is finished otherwise.
  for (auto& [peer, queue] : sends_) queue.clear();
}

}  // namespace trireme
