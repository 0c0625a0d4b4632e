package main

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"regexp"
	"strconv"
	"time"

	"github.com/apache/rocketmq-client-go/v2/primitive"
)

// getRoute is the code of GET_ROUTEINFO_BY_TOPIC, which the client has no public call for.
const getRoute = 105

// frameMax is more than any answer here is long, in bytes.
const frameMax = 1 << 20

// masterAddress finds the master in a route; older servers leave the quotes of the number out.
var masterAddress = regexp.MustCompile(`"brokerAddrs":\{"?0"?:"([^"]+)"`)

// routeAddress asks the name server for the address of the master that has a topic.
func routeAddress(topic string) (string, error) {
	connection, err := net.DialTimeout("tcp", os.Getenv("NAMESRV"), 5*time.Second)
	if err != nil {
		return "", err
	}
	defer connection.Close()
	if err := connection.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return "", err
	}
	header, err := json.Marshal(map[string]any{
		"code": getRoute, "language": "GO", "version": 0, "opaque": 1, "flag": 0, "extFields": map[string]string{"topic": topic},
	})
	if err != nil {
		return "", err
	}
	frame := binary.BigEndian.AppendUint32(nil, uint32(4+len(header)))
	frame = binary.BigEndian.AppendUint32(frame, uint32(len(header)))
	if _, err := connection.Write(append(frame, header...)); err != nil {
		return "", err
	}
	var length uint32
	if err := binary.Read(connection, binary.BigEndian, &length); err != nil {
		return "", err
	}
	if length > frameMax {
		return "", fmt.Errorf("an answer of %d bytes, more than %d", length, frameMax)
	}
	answer := make([]byte, length)
	if _, err := io.ReadFull(connection, answer); err != nil {
		return "", err
	}
	found := masterAddress.FindSubmatch(answer)
	if found == nil {
		return "", fmt.Errorf("no master in the route of %s: %s", topic, answer)
	}
	return string(found[1]), nil
}

// hostOf is the address of the broker that an offset id bears.
func hostOf(offsetID string) string {
	id, err := primitive.UnmarshalMsgID([]byte(offsetID))
	must(err, "offset id "+offsetID)
	return net.JoinHostPort(id.Addr, strconv.Itoa(id.Port))
}
