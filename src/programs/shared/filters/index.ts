/**
 * The judgement whether the packet filters of a node let packets of pods pass at the hook `forward`, and those of strangers to the suite's ports at the hook `input`: docker, ufw, firewalld and
 * others drop what they do not know.
 *
 * Owns: the reading of nftables' JSON and of iptables' listings, and the way of one packet through them. Does not know: what is done about it; it changes nothing.
 */
export { readForwardOf, readInputOf } from "./machine.ts";
