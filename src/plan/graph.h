// What the plan knows of a model: its blocks by name, the values between them, and what they cost.
//
// A model is a graph of blocks over values, in an order in which they can run. A unit is the
// weights that one block owns: what is gathered, released and reduced together. A tied weight
// belongs to the unit of its owner, and every block that uses it reads that unit.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace trireme {

// Of one sample. Bytes are those of the values' own element type.
struct BlockCost {
  double forward_flops = 0;  // of its matrix products; backward counts twice that
  int64_t output_bytes = 0;  // all outputs together
  int64_t tape_bytes = 0;    // what a forward that keeps its graph holds beside inputs and outputs
  // Of them, what backward can make again at little cost, and what it then needs beside its
  // scratch.
  int64_t remade_bytes = 0, remade_scratch_bytes = 0;
  // What a run needs beside all these, and gives back; forward never more than the limit.
  int64_t forward_scratch_bytes = 0, forward_scratch_limit = 0, backward_scratch_bytes = 0;
};

struct GraphBlock {
  std::string name;
  std::vector<std::string> inputs, outputs;  // names of values
  std::vector<int32_t> units;                // whose weights it reads; its own first
  std::vector<int32_t> tables;               // whose rows it reads
  BlockCost cost;
  bool forward_adds = false;  // a forward that keeps its graph adds to its units' gradients already
};

struct GraphUnit {
  std::string name;
  int64_t whole_bytes = 0, shard_bytes = 0;  // of its weights, all and what this rank owns
};

struct Graph {
  std::vector<GraphBlock> blocks;
  std::vector<GraphUnit> units;
  std::vector<std::string> tables;
};

}  // namespace trireme
