// A plugin of QEMU that counts how often each block of instructions is executed. The emulated program marks
// the beginning and the end of what is counted by the system call getppid. Each call appends a line
// "address instructions executions" for each block executed since the call before, and an empty line, to the
// file named by the argument out=FILE.
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// The part of QEMU's qemu-plugin.h (version 1 of the interface) that is used here: distributions do not
// install this header with the emulator.
typedef uint64_t qemu_plugin_id_t;
struct qemu_plugin_tb;
typedef void (*translated_t)(qemu_plugin_id_t, struct qemu_plugin_tb*);
typedef void (*syscall_t)(qemu_plugin_id_t, unsigned int vcpu, int64_t number, uint64_t, uint64_t, uint64_t,
                          uint64_t, uint64_t, uint64_t, uint64_t, uint64_t);
void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t, translated_t);
void qemu_plugin_register_vcpu_syscall_cb(qemu_plugin_id_t, syscall_t);
void qemu_plugin_register_vcpu_tb_exec_inline(struct qemu_plugin_tb*, int operation, void* counter, uint64_t);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb*);
uint64_t qemu_plugin_tb_vaddr(const struct qemu_plugin_tb*);

enum { kAdd = 0, kGetppid = 173 };  // QEMU_PLUGIN_INLINE_ADD_U64; __NR_getppid on AArch64

__attribute__((visibility("default"))) int qemu_plugin_version = 1;

struct Block {
  uint64_t address, executions;
  size_t instructions;
  struct Block* next;
};
static struct Block* blocks;
static FILE* out;

static void translated(qemu_plugin_id_t id, struct qemu_plugin_tb* tb) {
  (void)id;
  struct Block* const block = calloc(1, sizeof *block);
  if (!block) abort();
  block->address = qemu_plugin_tb_vaddr(tb);
  block->instructions = qemu_plugin_tb_n_insns(tb);
  block->next = blocks;
  blocks = block;
  qemu_plugin_register_vcpu_tb_exec_inline(tb, kAdd, &block->executions, 1);
}

static void called(qemu_plugin_id_t id, unsigned int vcpu, int64_t number, uint64_t a1, uint64_t a2,
                   uint64_t a3, uint64_t a4, uint64_t a5, uint64_t a6, uint64_t a7, uint64_t a8) {
  (void)id, (void)vcpu, (void)a1, (void)a2, (void)a3, (void)a4, (void)a5, (void)a6, (void)a7, (void)a8;
  if (number != kGetppid) return;
  for (struct Block* block = blocks; block; block = block->next) {
    if (block->executions)
      fprintf(out, "%llu %zu %llu\n", (unsigned long long)block->address, block->instructions,
              (unsigned long long)block->executions);
    block->executions = 0;
  }
  fprintf(out, "\n");
  fflush(out);
}

__attribute__((visibility("default"))) int qemu_plugin_install(qemu_plugin_id_t id, const void* info,
                                                               int argc, char** argv) {
  (void)info;
  if (argc != 1 || strncmp(argv[0], "out=", 4) || !(out = fopen(argv[0] + 4, "w"))) return 1;
  qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
  qemu_plugin_register_vcpu_syscall_cb(id, called);
  return 0;
}
