/* A driver library that tells what a text file says, for the real binding.
 *
 * Each line of the file FAKE_NVML is "<what> [<card>] <value…>"; see test_nvml.py beside.
 * Functions are left out at compile time with -DWITHOUT_…, as in an older library.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct { unsigned number; } Card;
typedef Card *Device;
typedef struct { unsigned long long total, free, used; } Memory;
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } Memory2;
typedef struct { unsigned gpu, memory; } Utilization;
typedef struct { unsigned pid; unsigned long long bytes; unsigned gi, ci; } Process;

enum { OK = 0, UNINITIALIZED = 1, INVALID = 2, NOT_SUPPORTED = 3, NO_PERMISSION = 4,
       NOT_FOUND = 6, SMALL = 7, LOST = 15 };

static Card cards[8];
static int open_count = 0;

/* The first line that begins with `what` and, if card >= 0, its number; the rest of it. */
static int told(const char *what, int card, char *rest, size_t size) {
    const char *path = getenv("FAKE_NVML");
    FILE *file = path ? fopen(path, "r") : NULL;
    char line[512], key[96];
    int found = 0;
    if (!file) return 0;
    if (card >= 0) snprintf(key, sizeof key, "%s %d ", what, card);
    else snprintf(key, sizeof key, "%s ", what);
    while (!found && fgets(line, sizeof line, file)) {
        if (strncmp(line, key, strlen(key)) == 0) {
            line[strcspn(line, "\n")] = 0;
            snprintf(rest, size, "%s", line + strlen(key));
            found = 1;
        }
    }
    fclose(file);
    return found;
}

/* An error that the file orders for this call ("error <what> <card> <code>"), or OK. */
static int fault(const char *what, int card) {
    char key[96], rest[64];
    if (told("gone", -1, rest, sizeof rest)) return atoi(rest);
    if (!open_count) return UNINITIALIZED;
    snprintf(key, sizeof key, "error %s", what);
    return told(key, card, rest, sizeof rest) ? atoi(rest) : OK;
}

int nvmlInitWithFlags(unsigned flags) {
    char rest[64];
    (void)flags;
    if (told("gone", -1, rest, sizeof rest)) return atoi(rest);
    for (unsigned place = 0; place < 8; place++) cards[place].number = place;
    open_count++;
    return OK;
}

int nvmlShutdown(void) {
    if (!open_count) return UNINITIALIZED;
    open_count--;
    return OK;
}

const char *nvmlErrorString(int code) {
    static char text[32];
    snprintf(text, sizeof text, "fake error %d", code);
    return text;
}

int nvmlDeviceGetCount_v2(unsigned *count) {
    char rest[64];
    int code = fault("count", 0);
    if (code) return code;
    *count = told("count", -1, rest, sizeof rest) ? (unsigned)atoi(rest) : 0;
    return OK;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned place, Device *device) {
    int code = fault("handle", (int)place);
    if (code) return code;
    if (place > 7) return INVALID;
    *device = &cards[place];
    return OK;
}

static int text(const char *what, Device device, char *out, unsigned size) {
    int code = fault(what, (int)device->number);
    if (code) return code;
    return told(what, (int)device->number, out, size) ? OK : NOT_SUPPORTED;
}

int nvmlDeviceGetUUID(Device device, char *out, unsigned size) {
    return text("uuid", device, out, size);
}

int nvmlDeviceGetName(Device device, char *out, unsigned size) {
    return text("name", device, out, size);
}

static int numbers(const char *what, Device device, unsigned long long *out, int most) {
    char rest[512], *at = rest, *end;
    int code = fault(what, (int)device->number), count = 0;
    if (code) return -code;
    if (!told(what, (int)device->number, rest, sizeof rest)) return -NOT_SUPPORTED;
    while (count < most) {
        out[count] = strtoull(at, &end, 0);
        if (end == at) break;
        at = end;
        count++;
    }
    return count;
}

/* "memory <card> <total> <reserved> <used>" in bytes. */
int nvmlDeviceGetMemoryInfo(Device device, Memory *out) {
    unsigned long long told_[3];
    int count = numbers("memory", device, told_, 3);
    if (count < 0) return -count;
    out->total = told_[0];
    out->used = told_[1] + told_[2];
    out->free = out->total - out->used;
    return OK;
}

#ifndef WITHOUT_MEMORY_V2
int nvmlDeviceGetMemoryInfo_v2(Device device, Memory2 *out) {
    unsigned long long told_[3];
    int count = numbers("memory", device, told_, 3);
    if (out->version != 0x02000028) return INVALID;
    if (count < 0) return -count;
    out->total = told_[0];
    out->reserved = told_[1];
    out->used = told_[2];
    out->free = out->total - out->reserved - out->used;
    return OK;
}
#endif

int nvmlDeviceGetUtilizationRates(Device device, Utilization *out) {
    unsigned long long percent;
    int count = numbers("utilization", device, &percent, 1);
    if (count < 0) return -count;
    out->gpu = (unsigned)percent;
    out->memory = 0;
    return OK;
}

static int one(const char *what, Device device, unsigned *out) {
    unsigned long long value;
    int count = numbers(what, device, &value, 1);
    if (count < 0) return -count;
    *out = (unsigned)value;
    return OK;
}

int nvmlDeviceGetTemperature(Device device, unsigned sensor, unsigned *out) {
    (void)sensor;
    return one("temperature", device, out);
}

#ifndef WITHOUT_POWER
int nvmlDeviceGetPowerUsage(Device device, unsigned *out) {
    return one("power", device, out);
}
#endif

/* "compute <card> <pid> <bytes> <pid> <bytes> …" */
static int processes(const char *what, Device device, unsigned *count, Process *out) {
    unsigned long long told_[32];
    int found = numbers(what, device, told_, 32);
    unsigned space = *count;
    if (found < 0) return -found;
    *count = (unsigned)found / 2;
    if (*count == 0) return OK;
    if (space < *count) return SMALL;
    for (unsigned place = 0; place < *count; place++) {
        out[place].pid = (unsigned)told_[2 * place];
        out[place].bytes = told_[2 * place + 1];
        out[place].gi = out[place].ci = 0xFFFFFFFF;
    }
    return OK;
}

#ifndef WITHOUT_PROCESSES_V3
int nvmlDeviceGetComputeRunningProcesses_v3(Device device, unsigned *count, Process *out) {
    return processes("compute", device, count, out);
}

int nvmlDeviceGetGraphicsRunningProcesses_v3(Device device, unsigned *count, Process *out) {
    return processes("graphics", device, count, out);
}
#endif

int nvmlDeviceGetComputeRunningProcesses_v2(Device device, unsigned *count, Process *out) {
    return processes("compute", device, count, out);
}

int nvmlDeviceGetGraphicsRunningProcesses_v2(Device device, unsigned *count, Process *out) {
    return processes("graphics", device, count, out);
}

/* "mig <card> <first instance> <count>": instances are cards of their own, with those numbers. */
int nvmlDeviceGetMigMode(Device device, unsigned *now, unsigned *pending) {
    unsigned long long told_[2];
    int count = numbers("mig", device, told_, 2);
    if (count < 0) return -count;
    *now = *pending = 1;
    return OK;
}

int nvmlDeviceGetMaxMigDeviceCount(Device device, unsigned *count) {
    (void)device;
    *count = 7;
    return OK;
}

int nvmlDeviceGetMigDeviceHandleByIndex(Device device, unsigned place, Device *instance) {
    unsigned long long told_[2];
    int count = numbers("mig", device, told_, 2);
    if (count < 0) return -count;
    if (place >= told_[1]) return NOT_FOUND;
    *instance = &cards[told_[0] + place];
    return OK;
}
