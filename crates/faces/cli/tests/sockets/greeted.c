/* Connects to an echo server and says who greeted it: greeted ADDRESS PORT. */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	struct sockaddr_in to = { .sin_family = AF_INET }, peer;
	socklen_t len = sizeof(peer);
	char line[512] = "";
	size_t at = 0;
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	if (argc != 3 || fd < 0)
		return 2;
	to.sin_port = htons(atoi(argv[2]));
	inet_pton(AF_INET, argv[1], &to.sin_addr);
	if (connect(fd, (struct sockaddr *)&to, sizeof(to)) || getpeername(fd, (struct sockaddr *)&peer, &len)) {
		perror("connect");
		return 1;
	}
	while (at < sizeof(line) - 1 && (!at || line[at - 1] != '\n')) {
		ssize_t got = read(fd, line + at, 1);

		if (got <= 0)
			return 1;
		at += got;
	}
	printf("peer %s:%d says %s", inet_ntoa(peer.sin_addr), ntohs(peer.sin_port), line);
	return 0;
}
