/* Lets User-Mode Linux 6.1 run on processors with more registers than it knows (Intel AMX). uml-run.sh preloads it.
 *
 * User-Mode Linux saves and restores the extended registers of its processes as the first 2.7 kB of the xstate area. If
 * the processor has more, ptrace still reads a part but writes only the whole (EFAULT otherwise), and the guest kernel
 * panics when it starts its first process. So each partial write is copied over the current registers, and the whole is
 * written; the registers beyond that part keep their values. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/types.h>
#include <sys/uio.h>

#define WHOLE 65536

typedef long (*ptrace_function)(int request, pid_t pid, void *address, void *data);

long ptrace(enum __ptrace_request request, ...)
{
    static ptrace_function real;
    static char whole[WHOLE];
    va_list arguments;
    va_start(arguments, request);
    pid_t pid = va_arg(arguments, pid_t);
    void *address = va_arg(arguments, void *);
    void *data = va_arg(arguments, void *);
    va_end(arguments);
    if (!real)
        real = (ptrace_function)dlsym(RTLD_NEXT, "ptrace");
    if (request != PTRACE_SETREGSET || (long)address != NT_X86_XSTATE)
        return real(request, pid, address, data);
    struct iovec *part = data, all = {whole, sizeof whole};
    if (real(PTRACE_GETREGSET, pid, address, &all) < 0)
        return -1;
    memcpy(whole, part->iov_base, part->iov_len < all.iov_len ? part->iov_len : all.iov_len);
    return real(PTRACE_SETREGSET, pid, address, &all);
}
