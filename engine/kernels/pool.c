/* The threads behind every kernel.

   A worker spins for a moment after a task, because the next one of a forward pass follows within
   microseconds, then sleeps. Chunks are claimed one by one and the caller waits for claimed chunks
   only, so that a thread which the machine holds back delays nobody; who does which changes no
   result. `ticket` holds the task's number and the next chunk in one word: a worker that comes late
   cannot claim a chunk of a task that it has not read. */
#include "pool.h"

#include <pthread.h>
#include <stdatomic.h>

#if defined(__x86_64__)
#include <immintrin.h>
#define RELAX() _mm_pause()
#else
#define RELAX() ((void)0)
#endif

enum { MOST_THREADS = 64, SPINS = 4000, CHUNK_BITS = 32 };

static pthread_mutex_t owner = PTHREAD_MUTEX_INITIALIZER; /* whose task runs */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;  /* for sleepers */
static pthread_cond_t wake = PTHREAD_COND_INITIALIZER;
static atomic_int wanted = 1, sleeping;
static int started = 1;

static _Atomic(pool_task) task_;
static _Atomic(void *) argument_;
static atomic_int_fast64_t chunks_, done;
static _Atomic uint64_t ticket;

static uint64_t number_of(uint64_t seen)
{
    return seen >> CHUNK_BITS;
}

/* Do chunks of task `number` while there are any. */
static void share(uint64_t number)
{
    pool_task task = atomic_load(&task_);
    void *argument = atomic_load(&argument_);
    int64_t chunks = atomic_load(&chunks_);
    uint64_t seen = atomic_load(&ticket);
    while (number_of(seen) == number && (int64_t)(uint32_t)seen < chunks)
        if (atomic_compare_exchange_weak(&ticket, &seen, seen + 1)) {
            task(argument, (int64_t)(uint32_t)seen);
            atomic_fetch_add(&done, 1);
            seen = atomic_load(&ticket);
        }
}

static int has_work(uint64_t last, int index)
{
    return number_of(atomic_load(&ticket)) != last && index < atomic_load(&wanted);
}

static void *work(void *place)
{
    int index = (int)(intptr_t)place;
    uint64_t last = 0;
    for (;;) {
        for (int spin = 0; spin < SPINS && !has_work(last, index); spin++)
            RELAX();
        if (!has_work(last, index)) {
            pthread_mutex_lock(&lock);
            atomic_fetch_add(&sleeping, 1);
            while (!has_work(last, index))
                pthread_cond_wait(&wake, &lock);
            atomic_fetch_sub(&sleeping, 1);
            pthread_mutex_unlock(&lock);
        }
        last = number_of(atomic_load(&ticket));
        share(last);
    }
    return 0;
}

static void wake_sleepers(void)
{
    if (atomic_load(&sleeping) == 0)
        return;
    pthread_mutex_lock(&lock);
    pthread_cond_broadcast(&wake);
    pthread_mutex_unlock(&lock);
}

void pool_run(pool_task task, void *argument, int64_t chunks)
{
    if (chunks < 2 || atomic_load(&wanted) < 2 || pthread_mutex_trylock(&owner) != 0) {
        for (int64_t chunk = 0; chunk < chunks; chunk++)
            task(argument, chunk);
        return;
    }
    uint64_t number = (number_of(atomic_load(&ticket)) + 1) & 0xffffffff;
    number = number ? number : 1;
    atomic_store(&task_, task);
    atomic_store(&argument_, argument);
    atomic_store(&chunks_, chunks);
    atomic_store(&done, 0);
    atomic_store(&ticket, number << CHUNK_BITS);
    wake_sleepers();
    share(number);
    while (atomic_load(&done) < chunks)
        RELAX();
    pthread_mutex_unlock(&owner);
}

int pool_set_threads(int threads)
{
    pthread_mutex_lock(&owner);
    if (threads > MOST_THREADS)
        threads = MOST_THREADS;
    while (started < threads) {
        pthread_t thread;
        if (pthread_create(&thread, 0, work, (void *)(intptr_t)started) != 0)
            break;
        pthread_detach(thread);
        started++;
    }
    threads = threads < 1 ? 1 : threads > started ? started : threads;
    atomic_store(&wanted, threads);
    pthread_mutex_unlock(&owner);
    return threads;
}

/* Whether this library runs on processors with AVX2 only. */
EXPORT int needs_avx2(void)
{
#ifdef __AVX2__
    return 1;
#else
    return 0;
#endif
}
