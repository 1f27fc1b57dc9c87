#include "cli/verbs.h"

int main(int argc, char** argv) { return trireme::run_command_line(argc, argv); }
