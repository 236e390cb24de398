/**
 * The servers of a lab's small internet: a file over HTTPS, and names over DNS.
 *
 * Owns: their answers, on sockets that others bound, and the DNS messages of tests. Does not know: namespaces and clients.
 *
 * ```ts
 * await using files = serveFiles(pairs.server, { https: [listenTcp(address, 443, { netns })], http: [] });
 * await using names = serveDns({ fd: bindUdp(gateway, 53, { netns }), family: 4 }, { "files.example": [address] });
 * ```
 */
export { encodeAnswer, readQuestion, serveDns, type Zone } from "./dns.ts";
export { CLIENT_HEADER, FILE_BYTES, serveFiles } from "./files.ts";
