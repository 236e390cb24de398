/** The numbers by which the pods' network is known in the kernel, unless flags change them. */
export const POD_DEFAULTS = { tableId: 116, rulePriority: 2000, protocolId: 30 } as const;
