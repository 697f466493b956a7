/* Listens on the port that is its argument, answers one connection until that ends, and ends. It has many files open: whoever closes them takes a while. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int count, char **words)
{
	struct sockaddr_in any = { .sin_family = AF_INET, .sin_port = htons(count > 1 ? atoi(words[1]) : 0) };
	int listener, on = 1, connection;
	char buffer[100];
	ssize_t bytes;

	for (int files = 0; files < 900; files++)
		open("/dev/null", O_RDONLY);
	listener = socket(AF_INET, SOCK_STREAM, 0);
	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
	if (bind(listener, (struct sockaddr *)&any, sizeof any) || listen(listener, 8)) {
		perror("once");
		return 1;
	}
	connection = accept(listener, NULL, NULL);
	while ((bytes = read(connection, buffer, sizeof buffer)) > 0)
		if (write(connection, buffer, bytes) != bytes)
			break;
	return 0;
}
