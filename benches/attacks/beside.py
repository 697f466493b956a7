"""Legitimate traffic beside a flood, and who serves it. `serve` answers; `ask` asks until SIGTERM, and prints what became of it as JSON; `watch` prints
the time at which so many frames more than usual came to an interface within a millisecond."""

import json, os, signal, socket, sys, threading, time

# Seconds for an answer.
PATIENCE = float(os.environ.get("PATIENCE_S", 1))
# The server at port 80 says four letters.
WORD = os.environ.get("WORD", "host").encode()


def serve(addresses):
    def tcp(address, family):
        listener = socket.create_server((address, 80), family=family, backlog=1024)
        while True:
            connection, _ = listener.accept()
            try:
                connection.sendall(WORD)
            except OSError:
                pass
            connection.close()

    def udp(address, family):
        receiver = socket.socket(family, socket.SOCK_DGRAM)
        receiver.bind((address, 53))
        while True:
            said, who = receiver.recvfrom(512)
            receiver.sendto(said, who)

    for address in addresses:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        for what in (tcp, udp):
            threading.Thread(target=what, args=(address, family), daemon=True).start()
    signal.pause()


def ask(addresses):
    counts, over, lock = {}, threading.Event(), threading.Lock()

    def count(what, began, answered):
        with lock:
            counts.setdefault(what, []).append([began, answered])

    def tcp(address):
        began = time.time()
        try:
            with socket.create_connection((address, 80), PATIENCE) as connection:
                connection.settimeout(PATIENCE)
                count("tcp", began, connection.recv(4) == WORD)
        except OSError:
            count("tcp", began, False)

    def udp(address):
        began = time.time()
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        with socket.socket(family, socket.SOCK_DGRAM) as asker:
            asker.settimeout(PATIENCE)
            try:
                asker.connect((address, 53))
                asker.send(b"who is it")
                count("udp", began, asker.recv(512) == b"who is it")
            except OSError:
                count("udp", began, False)

    def always(what, address):
        while not over.is_set():
            what(address)
            time.sleep(0.02)

    threads = [threading.Thread(target=always, args=(what, address)) for address in addresses for what in (tcp, udp)]
    signal.signal(signal.SIGTERM, lambda *_: over.set())
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(json.dumps(counts))


def watch(words):
    card, jump = words[0], int(words[1])
    with open("/proc/self/net/dev") as counters:
        before = None
        while True:
            counters.seek(0)
            line = next(line for line in counters if line.strip().startswith(card + ":"))
            frames = int(line.split(":")[1].split()[1])
            if before is not None and frames - before >= jump:
                print(time.time(), flush=True)
                return
            before = frames
            time.sleep(0.001)


{"serve": serve, "ask": ask, "watch": watch}[sys.argv[1]](sys.argv[2:])
