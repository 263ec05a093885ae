// No view but those that need no server.

export const views = {};
