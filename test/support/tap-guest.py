"""A guest on a TAP device: it announces its address, answers ARP for it, and ICMP echoes to it.

    python3 tap-guest.py DEVICE MAC ADDRESS

It prints "ready" when it reads packets, and ends with its parent.
"""
import fcntl
import os
import select
import socket
import struct
import sys
import time

TUNSETIFF = 0x400454CA
IFF_TAP = 0x0002
IFF_NO_PI = 0x1000
# RFC 5227 section 1.1: ANNOUNCE_NUM, and ANNOUNCE_INTERVAL in seconds.
ANNOUNCEMENTS = 2
ANNOUNCE_SECONDS = 2


def checksum(data):
    if len(data) % 2:
        data += b"\0"
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def answer(frame, mac, address):
    kind, payload = frame[12:14], frame[14:]
    if kind == b"\x08\x06" and payload[6:8] == b"\0\1" and payload[24:28] == address:
        asker = payload[8:18]
        return asker[:6] + mac + kind + payload[:6] + b"\0\2" + mac + address + asker
    if kind == b"\x08\x00" and payload[9] == 1 and payload[16:20] == address:
        size = (payload[0] & 15) * 4
        echo = payload[size : struct.unpack("!H", payload[2:4])[0]]
        if echo[0] != 8:
            return None
        body = b"\0\0\0\0" + echo[4:]
        reply = b"\0\0" + struct.pack("!H", checksum(body)) + echo[4:]
        head = payload[:8] + b"\x40\x01\0\0" + payload[16:20] + payload[12:16] + payload[20:size]
        head = head[:10] + struct.pack("!H", checksum(head)) + head[12:]
        return frame[6:12] + mac + kind + head + reply
    return None


def announcement(mac, address):
    """A gratuitous ARP request (RFC 5227 section 3): neighbours that know the address of a port before drop its MAC address."""
    head = b"\xff" * 6 + mac + b"\x08\x06" + b"\0\1\x08\0\6\4\0\1"
    return head + mac + address + b"\0" * 6 + address


def main():
    device, mac_text, address_text = sys.argv[1:4]
    mac = bytes.fromhex(mac_text.replace(":", ""))
    address = socket.inet_aton(address_text)
    tap = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(tap, TUNSETIFF, struct.pack("16sH22x", device.encode(), IFF_TAP | IFF_NO_PI))
    print("ready", flush=True)
    announced, due = 0, time.monotonic()
    while True:
        if announced < ANNOUNCEMENTS and time.monotonic() >= due:
            os.write(tap, announcement(mac, address))
            announced, due = announced + 1, time.monotonic() + ANNOUNCE_SECONDS
        pause = max(0, due - time.monotonic()) if announced < ANNOUNCEMENTS else None
        if not select.select([tap], [], [], pause)[0]:
            continue
        reply = answer(os.read(tap, 65536), mac, address)
        if reply is not None:
            os.write(tap, reply)


main()
